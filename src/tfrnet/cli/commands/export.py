"""`tfrnet export`: the unlearned model as an ordinary model folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.opening import load, model_name
from tfrnet.cli.output import Output
from tfrnet.core.errors import InputError

FORMATS = ("dense",)


def command(
    out: Annotated[Path, typer.Option(help="New folder for the model.")],
    state: opt.State = opt.DEFAULT_STATE,
    model: opt.Model = None,
    format: Annotated[
        str, typer.Option(help="dense: an ordinary model of the same shape.")
    ] = "dense",
    generation: Annotated[
        int | None,
        typer.Option(min=0, help="Generation of the state.", show_default="the current one"),
    ] = None,
    dtype: opt.Dtype = "auto",
    device: opt.Device = "auto",
    as_json: opt.AsJson = False,
) -> int:
    """Write the unlearned model as an ordinary model folder that any tool can load.

    The mask, adapter or trained weights are folded into a copy of the model. The export is loaded
    and its logits are compared with the live model's before success is reported. States of o3
    cannot be exported, because their effect depends on the prompt.
    """
    if format not in FORMATS:
        raise InputError(f"unknown format {format!r}; the formats are {', '.join(FORMATS)}")
    from tfrnet.method import find_method
    from tfrnet.state.store import StateStore

    output = Output(as_json)
    store = StateStore.open(state)
    number = store.generation if generation is None else generation
    method = find_method(store.manifest.method)
    if not method.exportable:
        raise InputError(
            f"a state of {method.method} cannot be exported: {method.why_not_exportable}"
        )
    store.load(number)
    name = model_name(model, state)
    loaded = load(name, dtype, device, output)
    from tfrnet.method_state import apply_state
    from tfrnet.models.export import export_dense

    provenance = {
        "made_by": "tfrnet export",
        "base_model": store.manifest.model,
        "base_fingerprint": store.manifest.fingerprint,
        "generation": number,
        "state_digest": store.history.digests[number],
    }
    with apply_state(loaded.model, state, number) as effect, output.waiting("exporting"):
        difference = export_dense(effect, loaded.tokenizer, out, provenance)
    output.say(
        f"exported generation {number} to {out}; its logits agree with the live model's "
        f"(relative difference {difference:.1e})"
    )
    output.result("export", {"out": str(out), "relative_difference": difference} | provenance)
    return 0
