"""Tables in a Markdown document: filled in between markers, and compared with new results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tfrnet.core.errors import InputError
from tfrnet_bench.tables.render import markdown
from tfrnet_bench.tables.table import Table

_START = re.compile(r"<!-- table: (\S+) -->\n")
_END = "<!-- end -->"


def fill_document(text: str, tables: Sequence[Table]) -> str:
    """Return the text with each table between its marks `<!-- table: NAME -->`, `<!-- end -->`."""
    known = {table.name: table for table in tables}
    filled, done = [], 0
    for name, start, end in _places(text):
        if name not in known:
            raise InputError(
                f"the document has a place for table {name!r}, which does not exist; "
                f"there are {', '.join(known) or 'none'}"
            )
        filled += [text[done:start], _block(known[name])]
        done = end
    return "".join(filled) + text[done:]


def stale_tables(text: str, tables: Sequence[Table]) -> list[str]:
    """Return the names of the document's tables that differ from these, or are not among them."""
    known = {table.name: table for table in tables}
    return [
        name
        for name, start, end in _places(text)
        if name not in known or text[start:end] != _block(known[name])
    ]


def _block(table: Table) -> str:
    # Without blank lines around it a Markdown table runs into the marks.
    return f"\n{markdown(table)}\n"


def _places(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield each table's name with the start and end of the text between its markers."""
    starts = list(_START.finditer(text))
    for number, mark in enumerate(starts, start=1):
        limit = starts[number].start() if number < len(starts) else len(text)
        end = text.find(_END, mark.end(), limit)
        if end < 0:
            raise InputError(f"table {mark[1]!r} of the document has no {_END} after it")
        yield mark[1], mark.end(), end
