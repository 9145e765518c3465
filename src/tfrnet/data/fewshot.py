"""Solved examples in front of a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tfrnet.core.errors import InputError
from tfrnet.data.items import Item


def with_shots(item: Item, shots: Sequence[Item]) -> Item:
    """Return the item after solved examples, each ended by an empty line.

    The item itself among them would be copying, not knowing. Where all is too long, the
    beginning of the solved examples is cut.
    """
    if any(shot.group == item.group for shot in shots):
        raise InputError(f"{item.key}: a solved example in front of it shares {item.group!r}")
    solved = "".join(f"{shot.example().joined}\n\n" for shot in shots)
    return replace(item, prompt=solved + item.prompt, passage=None if shots else item.passage)
