"""`tfrnet export`: what a state made of a model, in the forms that other programs load."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.opening import load, model_name
from tfrnet.cli.output import Output
from tfrnet.core.errors import InputError
from tfrnet.export import FORMATS
from tfrnet.models.bundled import BUNDLED, GEMMA

if TYPE_CHECKING:
    from tfrnet.export.format import Format

DEFAULT_FORMAT = "dense"


def command(
    out: Annotated[Path, typer.Option(help="New folder for the model.")],
    state: opt.State = opt.DEFAULT_STATE,
    model: opt.Model = None,
    format: Annotated[
        str,
        typer.Option(
            help=f"One of {', '.join(FORMATS.names())}. dense: an ordinary model folder. ia3: the "
            "mask as a PEFT adapter of a few hundred KB, which can be taken off again. gguf: a "
            "file for llama.cpp. lora: a PEFT LoRA adapter, where that is exact."
        ),
    ] = DEFAULT_FORMAT,
    quant: Annotated[
        str | None,
        typer.Option(
            help="Weights of a gguf: F32, F16, BF16, Q8_0 or Q4_K_M.", show_default="Q8_0"
        ),
    ] = None,
    rank: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Largest rank of a lora: changed channels in one projection.",
            show_default="64",
        ),
    ] = None,
    push: Annotated[
        str | None,
        typer.Option(
            metavar="OWNER/NAME",
            help="Upload the folder to the Hugging Face hub too, as this new model.",
            show_default=False,
        ),
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Let everybody see what --push uploads.")
    ] = False,
    generation: Annotated[
        int | None,
        typer.Option(min=0, help="Generation of the state to use.", show_default="the current one"),
    ] = None,
    dtype: opt.Dtype = "auto",
    device: opt.Device = "auto",
    trust_remote_code: opt.TrustRemoteCode = False,
    as_json: opt.AsJson = False,
) -> int:
    """Write the unlearned model for other programs: a model folder, an adapter or a GGUF file.

    The export is loaded and its logits are compared with the live model's before success is
    reported; of a GGUF file this is done before the conversion. A model card comes with it. States
    of o3 cannot be exported, because their effect depends on the prompt.
    """
    from tfrnet.export.new_folder import refuse_existing
    from tfrnet.state.store import StateStore

    output = Output(as_json)
    store = StateStore.open(state)
    refuse_existing(out)
    with output.waiting("starting"):
        from tfrnet.export.format import Job, Options
        from tfrnet.export.origin import origin_of

        form: Format = FORMATS.find(format)
        from tfrnet.method import find_method

    number = store.generation if generation is None else generation
    chosen = {"quant": quant, "rank": rank}
    given: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    _refuse_idle(form, given, public and not push)
    options = Options(**given)
    form.refuse(find_method(store.manifest.method), options)
    store.load(number)
    origin = origin_of(store, number)
    from tfrnet.export.hub import push as push_to_hub
    from tfrnet.export.hub import refuse_taken

    name = model_name(model, store)
    if push:
        _refuse_local_base(form, name)
        refuse_taken(push)
    loaded = load(
        *(name, store.manifest.dtype(dtype), device, output),
        trust_remote_code=trust_remote_code,
    )
    from tfrnet.export.write import write_export
    from tfrnet.method_state import apply_state
    from tfrnet.models.revision import hub_revision

    origin = replace(origin, base_revision=hub_revision(name))
    with (
        output.waiting("exporting"),
        apply_state(loaded.model, store, number, loaded.tokenizer) as effect,
    ):
        difference = write_export(Job(effect, loaded.tokenizer, origin, options), form, out)
    output.say(
        f"exported generation {number} to {out}; its logits agree with the live model's "
        f"(relative difference {difference:.1e})"
    )
    if form.removable:
        output.note(
            "it can be taken off: the base model still holds what was forgotten. Ship a dense or "
            "gguf export where that matters"
        )
    address = None
    if push:
        with output.waiting(f"uploading to {push}"):
            address = push_to_hub(out, push, not public)
        output.say(f"pushed to {address}")
    output.result(
        "export",
        {
            "out": str(out),
            "format": form.name,
            "relative_difference": difference,
            "pushed_to": address,
        }
        | origin.to_dict(),
    )
    return 0


def _refuse_local_base(form: Format, base: str) -> None:
    """Raise if others could not load what is pushed, and would read a place of this machine."""
    if form.relation == "adapter" and (Path(base).exists() or base in (BUNDLED, GEMMA)):
        raise InputError(
            f"an adapter names its base model, and {base} is on this machine only; push "
            "--format dense, or push the base and give its name on the hub with --model"
        )


def _refuse_idle(form: Format, given: Iterable[str], only_public: bool) -> None:
    """Raise if an option is given that the format does not heed, or --public without --push."""
    if idle := [f"--{name}" for name in given if name not in form.options]:
        takes = " and ".join(f"--{name}" for name in form.options)
        raise InputError(
            f"--format {form.name} does not take {' or '.join(idle)}"
            + (f", but {takes}" if takes else "")
        )
    if only_public:
        raise InputError("--public goes with --push")
