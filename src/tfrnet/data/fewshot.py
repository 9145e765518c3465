"""Few-shot examples in front of a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tfrnet.core.errors import InputError
from tfrnet.data.items import Item


def with_shots(item: Item, shots: Sequence[Item]) -> Item:
    """Return the item with solved examples in front, separated by empty lines.

    An example related to the item is an error, since the answer could be copied. If the prompt is
    too long, the start of the examples is cut.
    """
    if any(shot.group == item.group for shot in shots):
        raise InputError(f"{item.key}: one of its few-shot examples shares {item.group!r}")
    solved = "".join(f"{shot.example().joined}\n\n" for shot in shots)
    return replace(item, prompt=solved + item.prompt, passage=None if shots else item.passage)
