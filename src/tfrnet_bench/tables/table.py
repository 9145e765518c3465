"""A table as text: what every renderer starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfrnet.core.errors import InputError


@dataclass(frozen=True)
class Table:
    """A table whose first `text_columns` columns say what a row is; the others hold numbers."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    text_columns: int = 1

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise InputError(
                    f"a row of table {self.name} has {len(row)} cells for {len(self.columns)} "
                    f"columns: {row[0] if row else ''}"
                )
