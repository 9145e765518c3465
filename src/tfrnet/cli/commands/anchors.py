"""`tfrnet anchors`: retain lines near requests, written by the model itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.opening import DEFAULT_MODEL, load
from tfrnet.cli.output import Output
from tfrnet.core.errors import InputError


def command(
    requests: Annotated[Path, typer.Option(help="JSON Lines file of the requests.")],
    out: Annotated[Path, typer.Option(help="New JSON Lines file for the suggestions.")],
    model: opt.UntouchedModel = None,
    max_new_tokens: Annotated[
        int, typer.Option(min=4, help="Maximum number of new tokens per line.")
    ] = 24,
    batch_size: Annotated[int, typer.Option(min=1, help="Lines written at once.")] = 8,
    dtype: opt.Dtype = "auto",
    device: opt.Device = "auto",
    trust_remote_code: opt.TrustRemoteCode = False,
    as_json: opt.AsJson = False,
) -> int:
    """Have the untouched model suggest retain data close to the requests, in their language.

    It continues the first words of their prompts and everyday sentences in their language. Lines
    with an answer that is to be forgotten are left out. Read them before you add them to your
    retain data: a model also writes what is wrong, private or on the very topic to be forgotten.
    """
    from tfrnet.data.anchors import anchor_prompts, anchors
    from tfrnet.data.jsonlines import write_json_lines
    from tfrnet.data.requests import read_requests

    output = Output(as_json)
    _refuse_place(out)
    wanted = read_requests(requests)
    prompts = anchor_prompts(wanted)
    loaded = load(
        *(model or DEFAULT_MODEL, dtype, device, output), trust_remote_code=trust_remote_code
    )
    from tfrnet.models.generation import continue_texts

    with output.waiting("writing"):
        texts = continue_texts(loaded, prompts, max_new_tokens, batch_size, one_line=True)
    found = anchors(wanted, prompts, texts)
    if not found:
        raise InputError("the model wrote nothing usable; write the retain data by hand")
    write_json_lines(out, (example.to_dict() for example in found))
    output.say(f"wrote {out} ({len(found)} lines; read them before you use them)")
    output.result("anchors", {"out": str(out), "lines": len(found)})
    return 0


def _refuse_place(out: Path) -> None:
    """Raise before the model writes anything if the file cannot be made, and leave none behind."""
    try:
        out.open("x").close()
        out.unlink()
    except FileExistsError:
        raise InputError(f"{out} exists already; choose a new file") from None
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror}") from None
