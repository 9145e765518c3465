"""`tfrnet ask`: what a GGUF file says in llama.cpp."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.output import Output
from tfrnet.core.errors import InputError


def command(
    file: Annotated[Path, typer.Argument(help="GGUF file, such as one that export wrote.")],
    prompt: Annotated[list[str], typer.Option(help="Text to continue; may be repeated.")],
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Maximum number of new tokens.")] = 24,
    as_json: opt.AsJson = False,
) -> int:
    """Show how a GGUF file continues a prompt in llama.cpp (greedy decoding).

    A look at the very file that you ship: fewer bits can bring forgotten answers back.
    """
    if any(not text.strip() for text in prompt):
        raise InputError("--prompt is empty; give it some text")
    from tfrnet.export.llamacpp import continue_in_llamacpp, refuse_unreadable

    output = Output(as_json)
    refuse_unreadable(file)
    with output.waiting("generating"):
        answers = continue_in_llamacpp(file, prompt, max_new_tokens)
    rows = [{"prompt": text, "answer": said} for text, said in zip(prompt, answers, strict=True)]
    for row in rows:
        for name in ("prompt", "answer"):
            output.say(f"{name:<7} {' '.join(row[name].split())}")
        output.say("")
    output.result("ask", {"file": str(file), "answers": rows})
    return 0
