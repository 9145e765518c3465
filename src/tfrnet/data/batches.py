"""Grouping examples into batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tfrnet.data.examples import Encoded


def batches(
    encoded: Sequence[Encoded],
    batch_size: int,
    max_answer_tokens: int = 2048,
    max_tokens: int | None = None,
    overhead: int | None = None,
) -> list[list[int]]:
    """Group example indices by length, to save padding.

    `max_tokens` includes padding, but not an example's last token, which is not an input; a longer
    example gets a batch of its own. `max_answer_tokens` limits the positions that need logits: with
    a large vocabulary those, not the layers, would fill the memory.

    Every batch takes all that it has room for. But if `overhead` says what a batch costs besides
    its tokens, in tokens, the groups are those that cost least in all.
    """
    order = sorted(range(len(encoded)), key=lambda i: (len(encoded[i].ids), i))
    limits = _Limits(batch_size, max_answer_tokens, max_tokens)
    rows = [encoded[i] for i in order]
    ends = limits.full(rows) if overhead is None else limits.cheapest(rows, overhead)
    return [order[start:end] for start, end in pairwise([0, *ends])]


@dataclass(frozen=True)
class _Limits:
    """What a batch has room for; one example always fits."""

    examples: int
    answer_tokens: int
    tokens: int | None

    def allow(self, count: int, longest: Encoded, answer_tokens: int) -> bool:
        tokens = count * _inputs(longest)
        return count == 1 or (
            count <= self.examples
            and answer_tokens <= self.answer_tokens
            and (self.tokens is None or tokens <= self.tokens)
        )

    def full(self, rows: Sequence[Encoded]) -> list[int]:
        """Return where batches of sorted examples end if each takes all that it has room for."""
        ends: list[int] = []
        start = answer_tokens = 0
        for i, row in enumerate(rows):
            answer_tokens += row.answer_length
            if not self.allow(i + 1 - start, row, answer_tokens):
                ends.append(i)
                start, answer_tokens = i, row.answer_length
        return [*ends, len(rows)] if rows else []

    def cheapest(self, rows: Sequence[Encoded], overhead: int) -> list[int]:
        """Return where batches of sorted examples end if all together are to cost least.

        Of equally cheap ways, one whose last batch is the largest.
        """
        # Of the first so many examples: what they cost, and where the last batch begins.
        costs, starts = [0], [0]
        for end, longest in enumerate(rows, start=1):
            answer_tokens = 0
            found: list[tuple[int, int]] = []
            for start in range(end - 1, -1, -1):
                answer_tokens += rows[start].answer_length
                if not self.allow(end - start, longest, answer_tokens):
                    break
                padded = (end - start) * _inputs(longest)
                found.append((costs[start] + overhead + padded, start))
            cost, start = min(found)
            costs.append(cost)
            starts.append(start)
        ends: list[int] = []
        end = len(rows)
        while end:
            ends.append(end)
            end = starts[end]
        return ends[::-1]


def _inputs(example: Encoded) -> int:
    """Return the number of an example's tokens but the last, which is only predicted."""
    return len(example.ids) - 1
