"""A GGUF file in llama.cpp, by its Python binding."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tfrnet.core.errors import InputError

_BINDING = "xllamacpp"
# What llama.cpp calls the error of a prompt that its context cannot hold.
_TOO_LONG = "exceed_context_size_error"


def refuse_unreadable(path: Path) -> None:
    """Raise if there is no such GGUF file, or no llama.cpp to load it."""
    if not path.is_file():
        raise InputError(f"{path} is not a file; name the .gguf file itself")
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise InputError(f"{path} is not a GGUF file")
    if find_spec(_BINDING) is None:
        raise InputError("running GGUF files needs llama.cpp: pip install 'tfrnet[llamacpp]'")


def continue_in_llamacpp(path: Path, prompts: Sequence[str], max_new_tokens: int) -> list[str]:
    """Return llama.cpp's greedy continuation of each prompt."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_parallel = 1
    params.warmup = False
    params.verbosity = 0
    try:
        server = xllamacpp.Server(params)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"llama.cpp cannot load {path}: {error}") from error
    options = {"max_tokens": max_new_tokens, "temperature": 0}
    answers = [server.handle_completions({"prompt": text} | options) for text in prompts]
    return [_text_of(answer, number) for number, answer in enumerate(answers, 1)]


def _text_of(answer: dict[str, Any], number: int) -> str:
    """Return the text of an answer, or raise what llama.cpp says instead."""
    if error := answer.get("error"):
        too_long = error.get("type") == _TOO_LONG
        hint = "; give a shorter prompt" if too_long else ""
        raise InputError(f"llama.cpp does not continue prompt {number}: {error['message']}{hint}")
    return str(answer["choices"][0]["text"])
