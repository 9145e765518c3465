"""Tables as HTML: a click on a header sorts, see assets/tables.js."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

from tfrnet.evaluation.metrics.intervals import t_interval


@dataclass(frozen=True)
class Value:
    """What stands in a cell: a text, the number it is sorted by, a smaller remark, a longer one."""

    text: str
    number: float | None = None
    note: str = ""
    hint: str = ""


MISSING = Value("-")
MEANING = (
    "± is half the width of the 95 % interval (Student's t) of a mean; a mean without it is of a "
    "single value."
)
# Tables of so many rows are kept on one page in print.
_SHORT = 14


@dataclass(frozen=True)
class Row:
    """One row; `style` is a class of assets/style.css. A fixed row stays below the sorted ones."""

    values: Sequence[Value]
    style: str = ""
    is_fixed: bool = False


@dataclass(frozen=True)
class Table:
    """A table; the first column names its rows.

    `hints` explain columns by their label. With `order` the table comes sorted by that column, the
    highest first.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Row]
    hints: dict[str, str]
    order: str = ""
    note: str = ""

    def to_html(self) -> str:
        """Return the table with its caption."""
        place = self.columns.index(self.order) if self.order else -1
        rows = [row for row in self.rows if not row.is_fixed]
        if self.order:
            rows.sort(key=lambda row: _descending(row.values[place]))
        fixed = [row for row in self.rows if row.is_fixed]
        heads = "".join(
            _head(
                column,
                self.hints.get(column, ""),
                is_sorted=position == place,
                is_numeric=any(row.values[position].number is not None for row in self.rows),
            )
            for position, column in enumerate(self.columns)
        )
        foot = f"<tbody class=fixed>{''.join(map(_row, fixed))}</tbody>" if fixed else ""
        note = f"<p class=note>{escape(self.note)}</p>" if self.note else ""
        return (
            f'<div class="table{" long" if len(self.rows) > _SHORT else ""}">'
            f'<div class=scroll tabindex=0 role=group aria-label="{escape(self.caption)}">'
            f"<table class=sortable><caption>{escape(self.caption)}</caption>"
            f"<thead><tr>{heads}</tr></thead><tbody>{''.join(map(_row, rows))}</tbody>{foot}"
            f"</table></div>{note}</div>"
        )


def text(value: object) -> Value:
    """Return a value that is sorted by its letters."""
    return Value(str(value))


def number(value: float | None, digits: int = 1) -> Value:
    """Return a number as it was measured; one that is missing or not finite is a dash."""
    if value is None or not math.isfinite(value):
        return MISSING
    return Value(f"{value:,.{digits}f}", float(value))


def mean(values: Sequence[float], digits: int = 1) -> Value:
    """Return the mean over seeds, or cells, with half the width of its 95 % interval."""
    if not values or not all(map(math.isfinite, values)):
        return MISSING
    centre, interval = t_interval(values)
    found = number(centre, digits)
    if interval is None:
        return found
    reach = f"± {centre - interval.low:,.{digits}f}"
    ends = f"{interval.low:,.{digits}f} to {interval.high:,.{digits}f}"
    return replace(found, note=reach, hint=f"95 % interval {ends}, n = {len(values)}")


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


def _row(row: Row) -> str:
    style = f' class="{escape(row.style)}"' if row.style else ""
    first, *rest = row.values
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
