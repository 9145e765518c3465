"""`tfrnet import`: a state from an (IA)3 adapter of ours."""

# ruff: noqa: N999  (a command is called like its file)

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.opening import load, model_name
from tfrnet.cli.output import Output
from tfrnet.core.errors import InputError

if TYPE_CHECKING:
    from tfrnet.data.examples import Example
    from tfrnet.export.adapter_state import AdapterState
    from tfrnet.models.load import LoadedModel
    from tfrnet.state.new_state import NewState


def command(
    adapter: Annotated[
        Path, typer.Argument(help="Folder that 'tfrnet export --format ia3' wrote.")
    ],
    retain: opt.Retain,
    state: opt.State = opt.DEFAULT_STATE,
    model: opt.BaseModel = None,
    guard: opt.Guard = None,
    dtype: opt.Dtype = "auto",
    device: opt.Device = "auto",
    trust_remote_code: opt.TrustRemoteCode = False,
    key: opt.Key = None,
    as_json: opt.AsJson = False,
) -> int:
    """Make a new state of an (IA)3 adapter, to go on forgetting from it.

    The mask is checked by its digest and the base model by its fingerprint. What the old state
    remembered besides the mask (trajectories, earlier requests) is not in an adapter: the new one
    begins without it, and its ledger says where the mask came from. With --key that is signed.
    """
    from tfrnet.core.signing import named_key
    from tfrnet.data.requests import read_examples
    from tfrnet.export.adapter_state import read_adapter
    from tfrnet.state.new_state import NewState
    from tfrnet.state.signer import Signer
    from tfrnet.state.store import StateStore

    output = Output(as_json)
    found = read_adapter(adapter)
    if StateStore.exists(state):
        raise InputError(f"{state} holds a state already; name a new folder with --state")
    Signer(state, named_key(key)).check("")
    kept = read_examples(retain)
    watched = read_examples(guard) if guard else None
    name = model_name(model or _base_of(adapter, found.facts["base_model"]), None)
    # Locked also while the model loads: nobody else makes a state there meanwhile.
    with NewState(state) as place:
        loaded = load(name, dtype, device, output, trust_remote_code=trust_remote_code)
        from tfrnet.models.fingerprint import fingerprint

        found.refuse_other_model(name, fingerprint(loaded.model))
        digest = _take_in(found, loaded, name, place, kept, watched, key)
    changed = int((found.mask != 1).sum())
    output.say(f"imported {adapter} as generation 1 of {state}: {changed} changed channels")
    output.result("import", {"state": str(state), "adapter": str(adapter), "digest": digest})
    return 0


def _base_of(adapter: Path, name: str) -> str:
    """Return where an adapter's base model lies, if it is a local one, or its name."""
    from tfrnet.models.adapters import base_of
    from tfrnet.state.base_model import bare_name

    place = base_of(adapter)
    return place if bare_name(place) == name else name


def _take_in(
    found: AdapterState,
    loaded: LoadedModel,
    name: str,
    place: NewState,
    retain: list[Example],
    guard: list[Example] | None,
    key: Path | None,
) -> str:
    """Make the state and return its digest; if nothing could be taken in there is no state."""
    from tfrnet.method import find_method
    from tfrnet.session import Session

    method, facts = find_method(found.facts["method"]), found.facts
    config = method.config_class.from_record(facts["config"])
    with Session(
        *loaded,
        place,
        retain,
        guard=guard,
        method=method.method,
        config=config,
        seed=facts["seed"],
        key=key,
        model_name=name,
    ) as session:
        try:
            session.take_in({"mask": found.mask}, {"from": facts["state_digest"]})
        except BaseException as error:
            # At an InputError the session takes a state without a request back itself.
            if session.store.generation == 0 and not isinstance(error, InputError):
                place.remove_state()
            raise
        return session.store.history.digests[session.store.generation]
