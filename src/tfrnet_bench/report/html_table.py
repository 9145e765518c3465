"""Tables as HTML: a click on a header sorts, see assets/tables.js."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tfrnet_bench.report.values import MISSING
from tfrnet_bench.tables.table import Entry, Table, Value

# Tables of so many rows are kept on one page in print.
_SHORT = 14
_FOOTER_STYLE = "floor"


def html_table(table: Table) -> str:
    """Return the table with its title."""
    rows, footer = _values(table.rows), _values(table.footer)
    place = table.columns.index(table.order) if table.order else -1
    if table.order:
        rows.sort(key=lambda row: _descending(row[place]))
    heads = "".join(
        _head(
            column,
            table.hints.get(column, ""),
            is_sorted=position == place,
            is_numeric=any(row[position].number is not None for row in (*rows, *footer)),
        )
        for position, column in enumerate(table.columns)
    )
    body = "".join(_row(row, table.row_styles.get(row[0].text, "")) for row in rows)
    foot = "".join(_row(row, _FOOTER_STYLE) for row in footer)
    foot = f"<tbody class=fixed>{foot}</tbody>" if footer else ""
    note = f"<p class=note>{escape(table.note)}</p>" if table.note else ""
    return (
        f'<div class="table{" long" if len(rows) + len(footer) > _SHORT else ""}">'
        f'<div class=scroll tabindex=0 role=group aria-label="{escape(table.title)}">'
        f"<table class=sortable><caption>{escape(table.title)}</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody>{foot}"
        f"</table></div>{note}</div>"
    )


def html_tables(tables: Sequence[Table | None]) -> str:
    """Return tables side by side where there is room; nothing if there are none."""
    found = "".join(html_table(table) for table in tables if table is not None)
    return f"<div class=tables>{found}</div>" if found else ""


def _values(rows: Sequence[Sequence[Entry]]) -> list[list[Value]]:
    return [[Value(entry) if isinstance(entry, str) else entry for entry in row] for row in rows]


def _descending(value: Value) -> tuple[bool, float]:
    return (value.number is None, -(value.number or 0.0))


def _head(label: str, hint: str, is_sorted: bool, is_numeric: bool) -> str:
    order = "descending" if is_sorted else "none"
    title = f' title="{escape(hint)}"' if hint else ""
    style = " class=number" if is_numeric else ""
    return (
        f'<th scope=col{style} aria-sort="{order}"><button type=button{title}>{escape(label)}'
        "</button></th>"
    )


def _row(row: Sequence[Value], style: str) -> str:
    style = f' class="{escape(style)}"' if style else ""
    first, *rest = row
    cells = "".join(_cell(value) for value in rest)
    return f"<tr{style}><th scope=row>{_content(first)}</th>{cells}</tr>"


def _cell(value: Value) -> str:
    if value is MISSING:
        return f"<td class=missing>{value.text}</td>"
    if value.number is None:
        return f"<td>{_content(value)}</td>"
    hint = f' title="{escape(value.hint)}"' if value.hint else ""
    return f'<td class=number data-number="{value.number!r}"{hint}>{_content(value)}</td>'


def _content(value: Value) -> str:
    note = f"<small>{escape(value.note)}</small>" if value.note else ""
    return escape(value.text) + note
