"""`tfrnet generate`: what the model says before and after unlearning."""

from __future__ import annotations

from typing import Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.opening import load, model_name
from tfrnet.cli.output import Output
from tfrnet.core.errors import InputError


def command(
    prompt: Annotated[list[str], typer.Option(help="Text to continue; may be repeated.")],
    state: opt.State = opt.DEFAULT_STATE,
    model: opt.Model = None,
    generation: Annotated[
        int | None,
        typer.Option(min=0, help="Generation of the state.", show_default="the current one"),
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Maximum number of new tokens.")] = 24,
    dtype: opt.Dtype = "auto",
    device: opt.Device = "auto",
    trust_remote_code: opt.TrustRemoteCode = False,
    as_json: opt.AsJson = False,
) -> int:
    """Show how the untouched and the unlearned model continue a prompt (greedy decoding)."""
    if any(not text.strip() for text in prompt):
        raise InputError("a prompt is empty")
    from tfrnet.state.store import StateStore

    output = Output(as_json)
    store = StateStore.open(state)
    store.load(generation)
    loaded = load(
        *(model_name(model, store.manifest), store.manifest.dtype(dtype), device, output),
        trust_remote_code=trust_remote_code,
    )
    from tfrnet.method_state import apply_state
    from tfrnet.models.generation import continue_texts

    with output.waiting("generating"):
        before = continue_texts(loaded, prompt, max_new_tokens)
        with apply_state(loaded.model, store, generation, loaded.tokenizer):
            after = continue_texts(loaded, prompt, max_new_tokens)
    rows = [
        {"prompt": text, "before": first, "after": second}
        for text, first, second in zip(prompt, before, after, strict=True)
    ]
    for row in rows:
        for name in ("prompt", "before", "after"):
            output.say(f"{name:<7} {' '.join(row[name].split())}")
        output.say("")
    output.result("generate", {"state": str(state), "generations": rows})
    return 0
