"""A table: what every renderer starts from, be it Markdown, CSV, LaTeX or HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from tfrnet.core.errors import InputError


@dataclass(frozen=True)
class Value:
    """An entry that a page can sort: a text, its number, a smaller remark, a longer one."""

    text: str
    number: float | None = None
    note: str = ""
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.text} {self.note}" if self.note else self.text


Entry = str | Value


@dataclass(frozen=True)
class Table:
    """A table whose first `text_columns` columns say what a row is; the others hold numbers.

    The rest is for pages: `footer` rows stay below the sorted ones, `hints` explain columns by
    their label, `row_styles` are style classes by a row's first entry, and with `order` the table
    comes sorted by that column, the highest first.
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    note: str = ""
    text_columns: int = 1
    footer: Sequence[Sequence[Entry]] = ()
    hints: Mapping[str, str] = field(default_factory=dict)
    row_styles: Mapping[str, str] = field(default_factory=dict)
    order: str = ""

    def __post_init__(self) -> None:
        for row in chain(self.rows, self.footer):
            if len(row) != len(self.columns):
                raise InputError(
                    f"a row of table {self.name} has {len(row)} cells for {len(self.columns)} "
                    f"columns: {row[0] if row else ''}"
                )
