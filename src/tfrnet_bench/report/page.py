"""The page itself: sections, data, style and script in one file."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, Literal

from tfrnet.core.errors import InputError
from tfrnet.core.files import replace_file

# In this order: later ones use what the earlier ones define.
_SCRIPTS = (
    *("dom.js", "tooltip.js", "tables.js", "plot.js", "maps.js", "methods.js"),
    *("timeline.js", "accuracy.js", "channels.js", "cell.js"),
)


@dataclass(frozen=True)
class Section:
    """One part of the page; its body is HTML, its name the anchor of links to it."""

    name: str
    title: str
    body: str


@dataclass(frozen=True)
class Page:
    """A whole page. `counts` says in numbers what is in it, cells or requests, `words` in words."""

    kind: Literal["bench", "state"]
    html: str
    counts: dict[str, int]
    words: str

    def write(self, out: Path, mode: int = 0o644) -> Path:
        """Write the page to a file, which may be an older page but nothing else; return it."""
        if out.exists() and not _is_page(out):
            raise InputError(f"{out} exists and is not a page that tfrnet wrote; choose another")
        # A state of an earlier version may hold a request id with half of a surrogate pair.
        data = self.html.encode("utf-8", "backslashreplace")
        try:
            replace_file(out, data, mode)
        except OSError as error:
            raise InputError(f"{out} cannot be written: {error.strerror}") from error
        return out


def _is_page(path: Path) -> bool:
    beginning = _asset("template.html").partition("$")[0].encode()
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(beginning)) == beginning


def render(title: str, subtitle: str, sections: Sequence[Section], data: dict[str, Any]) -> str:
    """Return the page. Everything is inline, and its content policy forbids anything else."""
    style = _asset("style.css")
    script = '(() => {\n"use strict";\n' + "\n".join(map(_asset, _SCRIPTS)) + "})();"
    return Template(_asset("template.html")).substitute(
        title=escape(title),
        subtitle=escape(subtitle),
        links="".join(f'<a href="#{s.name}">{escape(s.title)}</a>' for s in sections),
        sections="".join(
            f'<section id="{s.name}" aria-labelledby="{s.name}-title">'
            f'<h2 id="{s.name}-title">{escape(s.title)}</h2>{s.body}</section>'
            for s in sections
        ),
        data=embedded(data),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
    )


def embedded(data: dict[str, Any]) -> str:
    """Return JSON that is safe inside a script element, whatever its texts are."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"sha256-{digest}"
