"""`tfrnet audit`: whether what was forgotten is gone in other words too, and what it cost."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.material import read_apart
from tfrnet.cli.opening import load, model_name
from tfrnet.cli.output import Output
from tfrnet.core.errors import InputError

if TYPE_CHECKING:
    from tfrnet.audit.review import Review
    from tfrnet.data.examples import Example
    from tfrnet.data.requests import Request
    from tfrnet.models.load import LoadedModel
    from tfrnet.state.store import StateStore


def command(
    requests: Annotated[
        Path,
        typer.Option(
            help="JSON Lines file of the requests; the state does not keep their words. Those that "
            "are not applied are left out."
        ),
    ],
    retain: Annotated[
        Path | None,
        typer.Option(
            help="JSON Lines file of retain data; the examples nearest to each request are "
            "measured.",
            show_default=False,
        ),
    ] = None,
    holdout: opt.Holdout = None,
    state: opt.State = opt.DEFAULT_STATE,
    model: opt.Model = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples per forward pass.")] = 8,
    dtype: opt.Dtype = "auto",
    device: opt.Device = "auto",
    trust_remote_code: opt.TrustRemoteCode = False,
    as_json: opt.AsJson = False,
) -> int:
    """Ask for everything that was forgotten again, in other words, and see what else changed.

    The untouched model is compared with the model as it is now. The wordings are made from the
    requests by plain rules: as a question, as a blank to fill in, with clauses in another order, in
    the chat template, from the first words, from the middle of a passage. 'forget' and 'run' do the
    same after each request. Nothing is written.
    """
    from tfrnet.data.requests import read_requests
    from tfrnet.state.store import StateStore

    output = Output(as_json)
    wanted = read_requests(requests)
    store = StateStore.open(state)
    applied = _applied(store, wanted, output)
    kept = read_apart(retain, "retain data", {}, applied)
    held_out = read_apart(holdout, "hold-out data", {"retain data": kept}, applied)
    loaded = load(
        *(model_name(model, store), store.manifest.dtype(dtype), device, output),
        trust_remote_code=trust_remote_code,
    )
    with output.waiting("asking in other words"):
        found = _review(loaded, store, applied, kept, held_out, batch_size)
    _show(output, state, store, found)
    return 0


def _applied(store: StateStore, requests: list[Request], output: Output) -> list[Request]:
    from tfrnet.state.applied import is_applied

    applied = [request for request in requests if is_applied(store, request)]
    if not applied:
        raise InputError(
            f"none of the {len(requests)} requests is applied in state {store.layout.folder}; "
            "'tfrnet history' lists those that are"
        )
    if left_out := len(requests) - len(applied):
        output.note(f"left out: {left_out} of {len(requests)} requests, which are not applied")
    return applied


def _review(
    loaded: LoadedModel,
    store: StateStore,
    requests: list[Request],
    kept: list[Example],
    holdout: list[Example],
    batch_size: int,
) -> Review:
    from tfrnet.audit.probe import ProbeMaker
    from tfrnet.audit.review import review
    from tfrnet.data.examples import encode_all
    from tfrnet.method_state import apply_state, settings_of
    from tfrnet.models.forward import evaluate_answers, fitting_length

    length = fitting_length(loaded.model, settings_of(store.manifest).to_dict()["max_length"])
    maker = ProbeMaker(loaded.tokenizer, length, kept)
    encoded = encode_all(holdout, loaded.tokenizer, length, "hold-out data")
    with apply_state(loaded.model, store, tokenizer=loaded.tokenizer) as effect:
        return review(
            requests,
            maker,
            encoded,
            lambda examples: evaluate_answers(loaded.model, examples, batch_size),
            effect.lifted,
        )


def _show(output: Output, state: Path, store: StateStore, found: Review) -> None:
    from tfrnet.audit.figures import Given
    from tfrnet.method_state import drift_of

    drift = drift_of(store)
    for name, figures in found.requests.items():
        output.say(f"{name}: {figures.verdict}")
    every = Given.together([figures.all_wordings for figures in found.requests.values()])
    output.say(f"all {len(found.requests)} requests: {every.words}")
    output.say(found.general.verdict_on_text)
    if found.holdout:
        output.say(f"hold-out data: {found.holdout.words}")
    if drift:
        output.say(f"total drift: {drift.words}")
    values: dict[str, Any] = {
        "state": str(state),
        "generation": store.generation,
        "requests": {name: figures.to_dict() for name, figures in found.requests.items()},
        "general": found.general.to_dict()["general"],
        "holdout": found.holdout.to_dict() if found.holdout else None,
        "wordings": asdict(every),
        "drift": drift.ratio if drift else None,
    }
    output.result("audit", values)
