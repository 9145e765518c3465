"""`tfrnet chat`: a conversation with the model, before and after unlearning."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from tfrnet.cli import options as opt
from tfrnet.cli.asking import AFTER, BEFORE, asked_model, refuse_undecoded
from tfrnet.cli.output import Output
from tfrnet.core.errors import InputError

_SAID = "what you say on standard input"


def command(
    state: opt.AskedState = None,
    untouched: opt.Untouched = False,
    model: opt.Model = None,
    generation: opt.Generation = None,
    max_new_tokens: opt.MaxNewTokens = 128,
    dtype: opt.Dtype = "auto",
    device: opt.Device = "auto",
    trust_remote_code: opt.TrustRemoteCode = False,
    as_json: opt.AsJson = False,
) -> int:
    """Talk to a model in its chat template (greedy decoding).

    With a state you see the untouched and the unlearned model side by side; each remembers its own
    answers. An empty line or Ctrl-D ends. Lines can also come from a pipe.
    """
    if sys.stdin is None:
        raise InputError("'tfrnet chat' reads what you say from standard input, which is closed")
    output = Output(as_json)
    with asked_model(
        state, untouched, generation, model, dtype, device, trust_remote_code, output
    ) as asked:
        from tfrnet.models.generation import stream_text

        template = _template(asked.loaded.tokenizer)
        said: dict[str, list[dict[str, str]]] = {BEFORE: [], AFTER: []}
        turns = []

        def ask(kind: str, heard: Callable[[str], None]) -> str:
            return stream_text(asked.loaded, template(said[kind]), max_new_tokens, heard)

        for line in _lines(output):
            for messages in said.values():
                messages.append({"role": "user", "content": line})
            answers = asked.answer(ask, output)
            for kind, text in answers.items():
                said[kind].append({"role": "assistant", "content": text})
            turns.append({"prompt": line} | answers)
    shown = str(asked.state) if asked.state else None
    output.result("chat", {"state": shown, "turns": turns})
    return 0


def _template(tokenizer: object) -> Callable[[list[dict[str, str]]], str]:
    """Return what makes a prompt of a conversation."""
    if not getattr(tokenizer, "chat_template", None):
        raise InputError("the model has no chat template; 'tfrnet generate' continues plain texts")

    def prompt(messages: list[dict[str, str]]) -> str:
        text: str = tokenizer.apply_chat_template(  # type: ignore[attr-defined]
            messages, tokenize=False, add_generation_prompt=True
        )
        return text

    return prompt


def _lines(output: Output) -> Iterator[str]:
    """Yield what the user says, until an empty line or the end."""
    while True:
        try:
            line = input("you> ") if output.is_terminal and sys.stdin.isatty() else _from_pipe()
        except EOFError:
            return
        except UnicodeDecodeError:
            raise InputError(f"{_SAID} is not UTF-8 text") from None
        refuse_undecoded(line, _SAID)
        if not line.strip():
            return
        if not (output.is_terminal and sys.stdin.isatty()):
            output.say(f"prompt  {line}")
        yield line


def _from_pipe() -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")
