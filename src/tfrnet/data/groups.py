"""Groups that guard examples name: kinds of knowledge, each of which must be kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tfrnet.data.examples import Example

# With fewer examples one of them alone may decide.
FEW = 4


def places_by_group(examples: Sequence[Example]) -> dict[str, list[int]]:
    """Return the places of every named group's examples.

    None if all examples are in one group: that says no more than all of them do.
    """
    found: dict[str, list[int]] = {}
    for place, example in enumerate(examples):
        if example.group:
            found.setdefault(example.group, []).append(place)
    return {name: found[name] for name in sorted(found) if len(found[name]) < len(examples)}


def small_groups(known: Iterable[Example], guard: Sequence[Example]) -> Iterator[str]:
    """Say which groups of the data have so few guard examples that their verdict means little."""
    counts = {example.group: 0 for example in (*known, *guard) if example.group}
    for example in guard:
        if example.group:
            counts[example.group] += 1
    few = [f"{name!r} ({counts[name]})" for name in sorted(counts) if counts[name] < FEW]
    if few:
        shown = ", ".join(few[:5]) + (", ..." if len(few) > 5 else "")
        yield (
            f"the guard has fewer than {FEW} examples of group{'s' if len(few) > 1 else ''} "
            f"{shown}: with none nothing watches a group, and with few a single example may have "
            "requests rejected; give more lines, or fewer groups"
        )
