"""`tfrnet split-text`: a long passage as a request of short pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.output import Output
from tfrnet.core.errors import InputError
from tfrnet.data.jsonlines import write_json_lines
from tfrnet.data.pieces import DEFAULT_WORDS, cut_request
from tfrnet.data.requests import Request, parse_request, read_requests


def command(
    file: Annotated[
        Path, typer.Argument(help="Plain text file, or a JSON Lines file of requests (.jsonl).")
    ],
    out: Annotated[Path, typer.Option(help="New JSON Lines file for the requests.")],
    name: Annotated[
        str | None,
        typer.Option("--id", help="Id of the request, for a plain text.", show_default=False),
    ] = None,
    words: Annotated[
        int, typer.Option(min=5, help="Maximum number of words in a piece.")
    ] = DEFAULT_WORDS,
    as_json: opt.AsJson = False,
) -> int:
    """Cut a passage to forget into pieces, at the ends of sentences.

    Each piece becomes a plain text that begins with the last words of the piece before. Of a file
    of requests only long plain texts are cut.
    """
    output = Output(as_json)
    if out.exists():
        raise InputError(f"{out} exists already; choose a new file")
    requests = _read(file, name)
    cut = [cut_request(request, words) for request in requests]
    write_json_lines(out, (request.to_dict() for request in cut))
    for before, after in zip(requests, cut, strict=True):
        output.say(f"{after.id}: {len(before.examples)} -> {len(after.examples)} examples")
    output.say(f"next: tfrnet run --stream {out} --retain retain.jsonl")
    pieces = {request.id: len(request.examples) for request in cut}
    output.result("split-text", {"out": str(out), "examples": pieces})
    return 0


def _read(file: Path, name: str | None) -> list[Request]:
    if file.suffix in (".jsonl", ".json", ".gz"):
        if name:
            raise InputError("--id is for a plain text; requests in a file have ids of their own")
        return read_requests(file)
    if name is None:
        raise InputError("--id is needed: it names the request that the text becomes")
    try:
        text = file.read_text(encoding="utf-8-sig")  # some editors write a mark
    except UnicodeDecodeError:
        raise InputError(f"{file} is not UTF-8 text") from None
    return [parse_request({"id": name, "examples": [{"text": text}]}, str(file))]
