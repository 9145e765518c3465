"""Everyday sentences in several languages, and code, written for this project."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from tfrnet.core import strict_json

NAMES = {
    "english": "English",
    "french": "French",
    "german": "German",
    "spanish": "Spanish",
    "code": "code",
}
LANGUAGES = ("english", "french", "german", "spanish")


@cache
def general_texts() -> Mapping[str, tuple[str, ...]]:
    """Return the texts of each kind: six a language, and six of code."""
    found: dict[str, tuple[str, ...]] = {}
    text = files(__package__).joinpath("general.jsonl").read_text(encoding="utf-8")
    for line in text.splitlines():
        row = strict_json.parse(line)
        found[row["kind"]] = (*found.get(row["kind"], ()), row["text"])
    return found
