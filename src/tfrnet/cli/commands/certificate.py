"""`tfrnet certificate`: what was done about one request, signed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.output import Output
from tfrnet.core.errors import CheckFailedError, InputError

if TYPE_CHECKING:
    from tfrnet.state.check import Check


def command(
    id: Annotated[str | None, typer.Option(help="Request to certify.", show_default=False)] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="New JSON file; a page for printing is written beside it.", show_default=False
        ),
    ] = None,
    check: Annotated[
        Path | None, typer.Option(help="Certificate to check.", show_default=False)
    ] = None,
    public_key: opt.PublicKey = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="With --check: file of the request, to check that this data was deleted.",
            show_default=False,
        ),
    ] = None,
    data_key: Annotated[
        Path | None,
        typer.Option(
            help="With --id: new file for the key to this request's digest. With --check and "
            "--data: that file; without it the key comes from --state.",
            show_default=False,
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the state. Default for --id: tfrnet-state. With --check, the "
            "certificate is also compared with its ledger.",
            show_default=False,
        ),
    ] = None,
    key: opt.ReadKey = None,
    as_json: opt.AsJson = False,
) -> int:
    """Certify that a request was applied, or check such a certificate.

    'tfrnet certificate --id ID --out FILE' writes what the ledger says of the request, signed with
    the state's key: times, method, losses before and after, place in the ledger; not its words.
    'tfrnet certificate --check FILE --public-key KEY' needs neither model nor state.

    Exit code 0: written, or all checks passed. 1: a check failed. 2: there is nothing to certify.
    """
    output = Output(as_json)
    if check is None:
        if id is None or out is None:
            raise InputError("give --id and --out to issue a certificate, or --check to check one")
        if data or public_key:
            raise InputError("--data and --public-key go with --check")
        _write(id, out, data_key, state or opt.DEFAULT_STATE, key, output)
        return 0
    if id is not None or out is not None:
        raise InputError("--check takes no --id and no --out")
    if data_key and not data:
        raise InputError("--data-key needs --data, the file of the request")
    checks = _check(check, public_key, data, data_key, state)
    output.checks("certificate", {"certificate": str(check)}, checks)
    if failed := [each for each in checks if not each.passed]:
        raise CheckFailedError(f"certificate {check} failed {len(failed)} of {len(checks)} checks")
    return 0


def _write(
    request_id: str, out: Path, data_key: Path | None, state: Path, key: Path | None, output: Output
) -> None:
    from tfrnet.core.clock import now
    from tfrnet.core.signing import named_key
    from tfrnet.state.certificate import certificate_bytes, make_certificate, request_key_for
    from tfrnet.state.certificate_page import certificate_page
    from tfrnet.state.signer import Signer
    from tfrnet.state.store import StateStore

    if not out.name:
        raise InputError(f"{out} is a folder; give --out a new file")
    store = StateStore.open(state)
    signing = Signer(state, named_key(key)).key_for(store.public_key)
    if signing is None:
        raise InputError(
            f"state {state} is not signed, so it cannot issue certificates; 'tfrnet key sign' "
            "signs it"
        )
    certificate = make_certificate(store.manifest, store.entries, request_id, now(), signing)
    page = out.with_suffix(".html")
    contents = {
        page: certificate_page(certificate).encode(),
        out: certificate_bytes(certificate),
    }
    modes = {}
    if data_key:
        contents[data_key] = request_key_for(certificate, store.key()).hex().encode() + b"\n"
        modes[data_key] = 0o600
    _create(contents, modes)
    place = certificate["ledger"]["sequence"]
    output.say(f"certified request {request_id!r}, line {place} of the ledger: {out} and {page}")
    output.result(
        "certificate", {"out": str(out), "page": str(page)} | {"certificate": certificate}
    )


def _create(contents: dict[Path, bytes], modes: dict[Path, int]) -> None:
    """Write new files: all of them or none."""
    from tfrnet.core import files

    if len({path.resolve() for path in contents}) < 2 + len(modes):
        raise InputError(
            "the certificate, its page (.html) and its key need different names; "
            "choose another --out or --data-key"
        )
    for path in contents:
        if path.exists():
            raise InputError(f"{path} exists already; choose a new file")
    written = []
    try:
        for path, content in contents.items():
            files.create_file(path, content, modes.get(path, 0o644))
            written.append(path)
    except BaseException as error:
        for path in written:
            path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InputError(f"{path} cannot be written: {error.strerror}") from error
        raise


def _check(
    path: Path,
    public_key: Path | None,
    data: Path | None,
    data_key: Path | None,
    state: Path | None,
) -> list[Check]:
    from tfrnet.core.signing import read_public_key
    from tfrnet.state.certificate import check_certificate, check_data, read_certificate
    from tfrnet.state.store import StateStore

    certificate = read_certificate(path)
    trusted = read_public_key(public_key) if public_key else None
    request = _find_request(data, certificate) if data else None
    store = StateStore.open(state) if state else None
    key = _key_of(certificate, data_key, store.key() if store else None) if request else b""
    checks = check_certificate(certificate, trusted, store.entries if store else None)
    if request and checks[0].passed:
        checks.append(check_data(certificate, request, key))
    return checks


def _find_request(data: Path, certificate: dict[str, Any]) -> Any:
    from tfrnet.data.requests import read_requests

    wanted = certificate["request"]["id"]
    for request in read_requests(data):
        if request.id == wanted:
            return request
    raise InputError(f"{data} does not contain request {wanted!r}, which the certificate is for")


def _key_of(certificate: dict[str, Any], data_key: Path | None, state_key: bytes | None) -> bytes:
    from tfrnet.state.certificate import read_data_key, request_key_for

    if data_key:
        return read_data_key(data_key)
    if state_key is None:
        raise InputError(
            "the digest has a key: give --data-key, which came with the certificate, or --state"
        )
    is_old = certificate["request"]["digest_key"] == "state"
    return state_key if is_old else request_key_for(certificate, state_key)
