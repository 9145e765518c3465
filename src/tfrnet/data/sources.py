"""Where datasets come from: a local folder, or the Hugging Face hub through `datasets`."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrnet.core.errors import InputError
from tfrnet.data.jsonlines import json_lines

VARIABLE = "TFRNET_DATA"


@dataclass(frozen=True)
class HubFile:
    """One split on the hub, as `datasets.load_dataset(path, name, data_files=..., split=...)`."""

    path: str
    name: str | None
    split: str
    data_files: str | None = None

    def __str__(self) -> str:
        return self.data_files or f"{self.path} ({self.name})"


KINDS = ("auto", "folder", "hub", "generated")


@dataclass(frozen=True)
class Source:
    """Where to look: a folder, the hub, or a generator if the dataset has one.

    `auto` is the folder if one is given here or by `TFRNET_DATA`, else the generator, else the hub.
    """

    kind: str = "auto"
    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"unknown source {self.kind!r}; choose from {', '.join(KINDS)}")
        if self.folder and self.kind in ("hub", "generated"):
            raise InputError(
                f"source {self.kind} reads nothing from the data folder {self.folder}; leave out "
                "--source or --data-dir"
            )
        variable = os.environ.get(VARIABLE)
        if self.folder is None and variable and self.kind in ("auto", "folder"):
            object.__setattr__(self, "folder", Path(variable).expanduser())
        if self.folder and not self.folder.is_dir():
            raise InputError(f"the data folder {self.folder} does not exist or is not a folder")
        if self.kind == "folder" and not self.folder:
            raise InputError(f"no data folder is given; use --data-dir or set {VARIABLE}")

    def chosen(self, can_generate: bool = False) -> str:
        """Return what `auto` means for one dataset."""
        if self.kind != "auto":
            return self.kind
        if self.folder:
            return "folder"
        return "generated" if can_generate else "hub"


def read_rows(file: str, hub: HubFile, source: Source) -> list[dict[str, Any]]:
    """Return a split's rows from the folder, where `file` may be gzipped, or from the hub."""
    kind = source.chosen()
    if kind == "generated":
        raise InputError(
            f"{file.split('/')[0]} is needed and cannot be generated, as only arithmetic can; use "
            "--source folder or hub"
        )
    if kind == "hub" or source.folder is None:
        return _from_hub(hub, file)
    places = (source.folder / file, source.folder / f"{file}.gz")
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise InputError(f"the data folder {source.folder} has neither {file} nor {file}.gz")
    return [_row(value, f"{path}:{number}") for number, value in json_lines(path)]


def read_folder(file: str, source: Source) -> list[dict[str, Any]]:
    """Return the rows of a dataset that only comes as a folder: JSON Lines, or a JSON list."""
    name = file.split("/")[0]
    if source.chosen() != "folder" or source.folder is None:
        raise InputError(f"{name} is read from a folder only; give --data-dir or set {VARIABLE}")
    path = source.folder / file
    if not path.is_file():
        raise InputError(f"the data folder {source.folder} has no {file}")
    if path.suffix == ".jsonl":
        return [_row(value, f"{path}:{number}") for number, value in json_lines(path)]
    try:
        values = json.loads(path.read_bytes())
    except ValueError:
        raise InputError(f"{path} is not JSON") from None
    if not isinstance(values, list):
        raise InputError(f"{path} does not contain a list")
    return [_row(value, f"{path}, row {number}") for number, value in enumerate(values)]


def _from_hub(hub: HubFile, file: str) -> list[dict[str, Any]]:
    advice = f"give a folder with {file} by --data-dir or {VARIABLE}"
    if importlib.util.find_spec("datasets") is None:
        raise InputError(
            f"{hub} comes from the Hugging Face hub and needs the datasets package "
            f"(pip install 'tfrnet[hub]'); or {advice}"
        )
    import datasets

    try:
        rows = datasets.load_dataset(hub.path, hub.name, data_files=hub.data_files, split=hub.split)
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{hub} could not be loaded from the hub ({reason}); {advice}") from error
    return [dict(row) for row in rows]


def _row(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where}: a row must be an object")
    return value


def need(row: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    """Return a row's field, or raise with the name of the row."""
    if not isinstance(row.get(name), kind):
        raise InputError(f"{where}: field {name!r} is missing or is not {_words(kind)}")
    return row[name]


def _words(kind: type) -> str:
    words = {str: "text", bool: "true or false", list: "a list", dict: "an object"}
    return words.get(kind, kind.__name__)
