"""A split on disk: the stream, retain and guard data for a run, and a manifest of row digests.

The manifest contains no text, only rows and their digests, so it can be published with results:
anyone with the datasets gets the same items.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfrnet.core import strict_json
from tfrnet.core.errors import InputError
from tfrnet.data.examples import Example
from tfrnet.data.items import Item
from tfrnet.data.protocol import Split
from tfrnet.data.sources import Source
from tfrnet.data.tasks import find_task

SCHEMA = "tfrnet.split/1"
MANIFEST = "split.json"


def to_manifest(split: Split) -> dict[str, Any]:
    """Return the split as row names and digests."""
    return {
        "schema": SCHEMA,
        "forget_task": split.forget_task,
        "seed": split.seed,
        "request_size": split.request_size,
        "parts": {
            name: [{"key": item.key, "digest": item.digest} for item in items]
            for name, items in split.parts().items()
        },
    }


def write_split(split: Split, folder: Path, by_task: bool = False) -> None:
    """Write a new folder: split.json, requests.jsonl, retain.jsonl, guard.jsonl.

    With `by_task` lines to keep name their task as their group.
    """
    if by_task and len(split.guard) == 1:
        raise InputError(
            f"what {split.forget_task} keeps is all of one task, so a guard by task would judge "
            "the same twice; leave --groups out (write_split: by_task)"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists already and is not empty; choose a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    _write_lines(folder / "requests.jsonl", (r.to_dict() for r in split.requests()))
    for name, parts in (("retain", split.retain), ("guard", split.guard)):
        examples = _in_groups(parts, by_task)
        _write_lines(folder / f"{name}.jsonl", (example.to_dict() for example in examples))
    (folder / MANIFEST).write_text(json.dumps(to_manifest(split), indent=1) + "\n")


def _in_groups(parts: Mapping[str, Sequence[Item]], by_task: bool) -> Iterator[Example]:
    for task, items in parts.items():
        for item in items:
            yield replace(item.example(), group=task if by_task else "")


def read_split(path: Path, source: Source) -> Split:
    """Find the items of a manifest (the file or its folder) in the datasets."""
    file = path / MANIFEST if path.is_dir() else path
    try:
        manifest = strict_json.parse(file.read_bytes())
        if manifest["schema"] != SCHEMA:
            raise InputError(f"{file} has schema {manifest['schema']}, not {SCHEMA}")
        parts: dict[str, list[dict[str, str]]] = manifest["parts"]
        wanted = [row for rows in parts.values() for row in rows]
        found = _find(wanted, file, source)
        return _split(manifest, {n: tuple(found[r["key"]] for r in p) for n, p in parts.items()})
    except FileNotFoundError:
        raise InputError(
            f"{file} does not exist; 'tfrnet split --task boolq --out {path}' makes one"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file} is not a split made by 'tfrnet split' ({error!r})") from None


def _split(manifest: Mapping[str, Any], parts: Mapping[str, tuple[Item, ...]]) -> Split:
    def by_task(kind: str) -> dict[str, tuple[Item, ...]]:
        return {
            name.partition("/")[2]: items
            for name, items in parts.items()
            if name.startswith(f"{kind}/")
        }

    return Split(
        forget_task=manifest["forget_task"],
        seed=manifest["seed"],
        request_size=manifest["request_size"],
        forget=parts["forget"],
        forget_eval=parts["forget_eval"],
        retain=by_task("retain"),
        guard=by_task("guard"),
        heldout=by_task("heldout"),
    )


def _find(rows: Iterable[Mapping[str, str]], file: Path, source: Source) -> dict[str, Item]:
    """Return items by key, with digests that match the manifest."""
    digests = {row["key"]: row["digest"] for row in rows}
    # A key is task/split/row.
    places = sorted({tuple(key.split("/")[:2]) for key in digests})
    known = {item.key: item for task, part in places for item in find_task(task).load(part, source)}
    for key, digest in digests.items():
        if key not in known or known[key].digest != digest:
            what = "differs" if key in known else "is missing"
            raise InputError(
                f"{key}, listed in {file}, {what} in these datasets; "
                "use the datasets that the split was made with"
            )
    return known


def _write_lines(path: Path, rows: Iterable[object]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
