"""`tfrnet key`: the keys that sign a ledger."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.output import Output
from tfrnet.core.errors import InputError

ACTIONS = ("new", "public", "sign", "rotate")


def command(
    action: Annotated[
        str,
        typer.Argument(
            metavar="ACTION",
            help="new: make a key. public: print the public key, of --key or else of the state. "
            "sign: sign the state from now on. rotate: hand over to --new-key.",
        ),
    ],
    key: opt.Key = None,
    new_key: Annotated[
        Path | None,
        typer.Option(
            help="For rotate: file of the next signing key; made if it is not there.",
            show_default=False,
        ),
    ] = None,
    state: opt.State = opt.DEFAULT_STATE,
    as_json: opt.AsJson = False,
) -> int:
    """Make, show and change the key that signs a state's ledger.

    A key is an Ed25519 key in a PEM file that only its owner can read. Keep it outside the state,
    and give the public key to whoever is to check the ledger or a certificate. A rotation is a
    line of the ledger that both keys sign; either public key can check the ledger after it.
    """
    if action not in ACTIONS:
        raise InputError(f"unknown action {action!r}; choose from {', '.join(ACTIONS)}")
    if action == "rotate" and new_key is None:
        raise InputError("'tfrnet key rotate' needs the next key: --new-key FILE")
    if new_key is not None and action != "rotate":
        raise InputError("--new-key goes with 'tfrnet key rotate' only")
    from tfrnet.core.signing import make_key, named_key

    path, output = named_key(key), Output(as_json)
    if action == "public":
        _print_public(path, state, output)
        return 0
    if path is None:
        raise InputError(f"'tfrnet key {action}' needs a key: --key FILE or TFRNET_KEY")
    if action == "new":
        _tell(output, f"made signing key {path}", make_key(path).public.text, path)
    elif action == "sign":
        _tell(output, f"state {state} is signed from now on", _sign(state, path), path)
    elif new_key is not None:
        text = f"state {state} is signed with {new_key} from now on"
        _tell(output, text, _rotate(state, path, new_key), new_key)
    return 0


def _print_public(path: Path | None, state: Path, output: Output) -> None:
    from tfrnet.core.signing import PublicKey, read_key, short
    from tfrnet.state.store import StateStore

    if path:
        public = read_key(path).public
    else:
        in_force = StateStore.open(state).public_key
        if not in_force:
            raise InputError(
                f"state {state} is not signed, so it has no public key; 'tfrnet key sign' signs it"
            )
        public = PublicKey.from_text(in_force)
    if not output.as_json:
        sys.stdout.write(public.pem().decode())
    output.result("key", {"key": short(public.text), "public_key": public.text})


def _sign(state: Path, path: Path) -> str:
    from tfrnet.state.store import StateStore

    with StateStore.open(state, write=True, key=path) as store:
        if store.public_key:
            raise InputError(
                f"state {state} is signed already; 'tfrnet key rotate' changes its key"
            )
        store.begin_signing()
        return store.public_key


def _rotate(state: Path, path: Path, new_key: Path) -> str:
    from tfrnet.state.store import StateStore

    with StateStore.open(state, write=True, key=path) as store:
        store.rotate_key(new_key)
        return store.public_key


def _tell(output: Output, what: str, public_key: str, path: Path) -> None:
    from tfrnet.core.signing import short

    output.say(f"{what}: key {short(public_key)}")
    output.result("key", {"file": str(path), "key": short(public_key), "public_key": public_key})
