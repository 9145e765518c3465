"""`tfrnet generate`: what the model says, before and after unlearning."""

from __future__ import annotations

from typing import Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.asking import asked_model, on_one_line, refuse_undecoded
from tfrnet.cli.output import Output
from tfrnet.core.errors import InputError


def command(
    prompt: Annotated[list[str], typer.Option(help="Text to continue; may be repeated.")],
    state: opt.AskedState = None,
    untouched: opt.Untouched = False,
    model: opt.Model = None,
    generation: opt.Generation = None,
    max_new_tokens: opt.MaxNewTokens = 24,
    dtype: opt.Dtype = "auto",
    device: opt.Device = "auto",
    trust_remote_code: opt.TrustRemoteCode = False,
    as_json: opt.AsJson = False,
) -> int:
    """Show how a model continues a prompt (greedy decoding).

    With a state you see the untouched and the unlearned model side by side. Without one it is the
    model alone: what does it know? 'tfrnet chat' asks in the model's chat template.
    """
    if any(not text.strip() for text in prompt):
        raise InputError("--prompt is empty; give it some text")
    for text in prompt:
        refuse_undecoded(text, "--prompt")
    output = Output(as_json)
    with asked_model(
        state, untouched, generation, model, dtype, device, trust_remote_code, output
    ) as asked:
        from tfrnet.models.generation import stream_text

        rows = []
        for text in prompt:
            output.say(f"prompt  {on_one_line(text)}")
            answers = asked.answer(
                lambda kind, heard, text=text: stream_text(  # type: ignore[misc]
                    asked.loaded, text, max_new_tokens, heard
                ),
                output,
            )
            output.say("")
            rows.append({"prompt": text} | answers)
    shown = str(asked.state) if asked.state else None
    output.result("generate", {"state": shown, "generations": rows})
    return 0
