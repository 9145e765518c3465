"""TOFU as a stream: the authors of a forget set, one request each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from tfrnet.core.errors import InputError
from tfrnet.data.examples import Example
from tfrnet.data.items import refuse_same
from tfrnet.data.requests import Request
from tfrnet.data.sampling import sample_by_group, sample_indices, seeded_order
from tfrnet.data.sources import Source
from tfrnet.data.tofu import AUTHOR_ROWS, SIZES, TofuRow, load_tofu, tofu_example, tofu_prompt
from tfrnet_bench.run.plan import TofuSizes

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class TofuStream:
    """What is forgotten, author by author; what is kept; what is measured."""

    authors: Sequence[Sequence[TofuRow]]
    kept: Sequence[TofuRow]
    sets: Mapping[str, Sequence[TofuRow]]
    members: Sequence[TofuRow]
    non_members: Sequence[TofuRow]
    sizes: TofuSizes

    @property
    def digest(self) -> str:
        """A digest of all words."""
        rows = [*self.authors, self.kept, *self.sets.values(), self.members, self.non_members]
        # Where a row stands in its file does not count, as in comparisons.
        names = [item.name for item in fields(TofuRow) if item.compare]
        words = [[[getattr(row, name) for name in names] for row in part] for part in rows]
        return hashlib.sha256(json.dumps(words).encode()).hexdigest()

    def requests(self, seed: int, tokenizer: PreTrainedTokenizerBase) -> list[Request]:
        """Return the authors in a seeded order, one request each."""
        order = seeded_order(len(self.authors), "tofu", seed)[: self.sizes.requests]
        return [
            Request(
                f"tofu-{seed}-{number:02d}",
                tuple(self._example(row, tokenizer) for row in self.authors[author]),
            )
            for number, author in enumerate(order, start=1)
        ]

    def retain(
        self, seed: int, tokenizer: PreTrainedTokenizerBase
    ) -> tuple[list[Example], list[Example]]:
        """Return retain and guard examples: other authors than those who are measured."""
        sizes = self.sizes
        drawn = sample_indices(len(self.kept), sizes.retain + sizes.guard, "tofu-kept", seed)
        guard = set(sample_indices(len(drawn), sizes.guard, "tofu-guard", seed))
        examples = [self._example(self.kept[i], tokenizer) for i in drawn]
        return (
            [example for i, example in enumerate(examples) if i not in guard],
            [example for i, example in enumerate(examples) if i in guard],
        )

    def _example(self, row: TofuRow, tokenizer: PreTrainedTokenizerBase) -> Example:
        return tofu_example(tofu_prompt(row.question, tokenizer, self.sizes.template), row.answer)


def make_tofu_stream(source: Source, sizes: TofuSizes) -> TofuStream:
    """Read TOFU, whose files hold one author after another."""
    forget = load_tofu(f"forget{sizes.forget}", source)
    authors = [forget[i : i + AUTHOR_ROWS] for i in range(0, len(forget), AUTHOR_ROWS)]
    if len(authors) < sizes.requests:
        raise InputError(
            f"TOFU's forget{sizes.forget} has {len(authors)} authors, not {sizes.requests}"
        )
    sets = {name: load_tofu(split, source) for name, split in sizes.options.files().items()}
    measured = {row.question for rows in sets.values() for row in rows}
    rest = f"retain{SIZES[sizes.forget]}"
    others = load_tofu(rest, source)
    kept = [row for row in others if row.question not in measured]
    if len(kept) < sizes.retain + sizes.guard:
        raise InputError(
            f"TOFU's {rest} has {len(kept)} rows that are not measured, but "
            f"{sizes.retain} to keep and {sizes.guard} for the guard are asked for"
        )
    members, non_members = (load_tofu(f, source) for f in sizes.options.membership_files())
    refuse_same(
        {
            f"forget{sizes.forget}": _words(forget),
            rest: _words(others),
            sizes.options.membership_files()[1]: _words(non_members),
        }
    )
    return TofuStream(
        authors=authors,
        kept=kept,
        sets={name: _sample(rows, sizes.rows) for name, rows in sets.items()},
        members=_sample(members, sizes.rows),
        non_members=_sample(non_members, sizes.rows),
        sizes=sizes,
    )


def _sample(rows: Sequence[TofuRow], count: int | None) -> Sequence[TofuRow]:
    """Return so many rows, of one author after another: the first ones would be of a few only."""
    if count is None:
        return rows
    authors = [f"{place // AUTHOR_ROWS:04}" for place in range(len(rows))]
    return [rows[place] for place in sample_by_group(authors, count, "tofu-rows")]


def _words(rows: Sequence[TofuRow]) -> list[tuple[str, str]]:
    return [(row.question, row.answer) for row in rows]
