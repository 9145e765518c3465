"""Reading a page back: its tables and its data."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any, NamedTuple


class ReadCell(NamedTuple):
    text: str
    number: float | None


class ReadPage(HTMLParser):
    """`tables` are by caption: rows, each by its columns; `text` is all text there is."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tables: dict[str, list[dict[str, ReadCell]]] = {}
        self.links: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.data: dict[str, Any] = {}
        self._inside: list[str] = []
        self._caption = ""
        self._columns: list[str] = []
        self._row: list[ReadCell] = []
        self._id = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        self.links += [values[name] or "" for name in ("href", "src") if name in values]
        if tag == "meta":
            return
        self._inside.append(tag)
        self._id = values.get("id") or ""
        if tag == "table":
            self._caption, self._columns = "", []
        elif tag == "tr":
            self._row = []
        elif tag in ("th", "td"):
            number = values.get("data-number")
            self._row.append(ReadCell("", None if number is None else float(number)))

    def handle_data(self, data: str) -> None:
        if "script" in self._inside:
            if self._id == "data":
                self.data = json.loads(data, parse_constant=_refuse)
            return
        if "style" in self._inside:
            return
        self.text += data
        if "caption" in self._inside:
            self._caption += data
            self.tables.setdefault(self._caption, [])
        elif {"th", "td"} & set(self._inside):
            self._row[-1] = self._row[-1]._replace(text=self._row[-1].text + data)

    def handle_endtag(self, tag: str) -> None:
        while self._inside.pop() != tag:
            pass
        if tag != "tr":
            return
        if "thead" in self._inside:
            self._columns = [cell.text for cell in self._row]
        else:
            self.tables[self._caption].append(dict(zip(self._columns, self._row, strict=True)))

    def row(self, caption: str, name: str) -> dict[str, ReadCell]:
        """Return the row whose first cell begins with a name."""
        (found,) = [
            row
            for row in self.tables[caption]
            if next(iter(row.values())).text.removesuffix("untouched model") == name
        ]
        return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
