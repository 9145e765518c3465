"""Kinds of short answers that can be told by themselves: whole numbers, yes and no."""

from __future__ import annotations

import re
from typing import Literal

Kind = Literal["number", "label"]

# What stands before the digits, the digits, what stands after them.
NUMBER = re.compile(r"(\s*[-+]?)(\d+)([.\s]*)")
_LABEL = re.compile(r"(\s*)(yes|no|true|false)([.\s]*)", re.IGNORECASE)
_OTHER = {"yes": "no", "no": "yes", "true": "false", "false": "true"}


def kind_of(answer: str) -> Kind | None:
    """Return the kind of an answer, if it has one."""
    if NUMBER.fullmatch(answer):
        return "number"
    return "label" if _LABEL.fullmatch(answer) else None


def other_label(answer: str) -> str | None:
    """Return the other of yes and no, or of true and false, written in the same way."""
    found = _LABEL.fullmatch(answer)
    return found and found[1] + _in_case_of(found[2]) + found[3]


def _in_case_of(word: str) -> str:
    other = _OTHER[word.lower()]
    if word.isupper():
        return other.upper()
    return other.capitalize() if word[0].isupper() else other
