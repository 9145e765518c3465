"""Sphinx: the documents of this folder as a site, with references made from the code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import tfrnet

DOCS = Path(__file__).parent
ROOT = DOCS.parent

project = "tfrnet"
author = "the tfrnet authors"
version = release = tfrnet.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "tfrnet"
html_show_copyright = False
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["site.css"]
# Headings as link targets, by GitHub's rule, so that one link works there and here.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
# Literal blocks of commands and of output are not a language.
highlight_language = "none"

# Pages of the repository that the site shows under names of its own.
_SHOWN = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples.md",
}
_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)[^)\s]+)\)")


def _inside(match: re.Match[str]) -> str:
    """Point a link that leaves the documents to its page here, or name the file."""
    text, target = match[1], match[2].removeprefix("../")
    name, _, heading = target.partition("#")
    if name in _SHOWN:
        return f"[{text}]({_SHOWN[name]}{'#' + heading if heading else ''})"
    return text if text.strip("`") == target else f"{text} (`{target}`)"


def _as_document(path: str) -> str:
    """Return a page of another folder as if it lay among the documents."""
    folder = Path(path).parent
    # On its own page an example is shown below, under its name as a heading.
    text = re.sub(r"\]\((\w+)\.py\)", r"](#\1py)", (ROOT / path).read_text())
    text = re.sub(r"\]\((?!docs/|#|[a-z]+:)([^)\s]+)\)", lambda m: f"](../{folder / m[1]})", text)
    return text.replace("](docs/", "](")


def _read(app: Any, name: str, source: list[str]) -> None:
    included = re.search(r"^<!-- page: (\S+) -->$", source[0], flags=re.MULTILINE)
    if included:
        source[0] = source[0].replace(included[0], _as_document(included[1]))
    if "<!-- commands -->" in source[0]:
        source[0] = source[0].replace("<!-- commands -->", _commands())
    source[0] = _LINK.sub(_inside, source[0])


def _commands() -> str:
    """Return the reference of the command line, by typer."""
    import typer
    from typer.cli import get_docs_for_click

    from tfrnet.cli.app import build_app

    command = typer.main.get_command(build_app())
    _say_in_full(command)
    context = command.context_class(command, info_name="tfrnet")
    text: str = get_docs_for_click(obj=command, ctx=context, name="tfrnet")
    return re.sub(r"^# .*\n", "", text, count=1)


def _say_in_full(command: Any) -> None:
    """Let lists of commands hold the whole first sentence of each, which would be cut."""
    for each in getattr(command, "commands", {}).values():
        first = " ".join((each.help or "").partition("\n\n")[0].split())
        each.short_help = re.split(r"(?<=\.) ", first)[0]
        _say_in_full(each)


def _plain(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Show our docstrings as they are written: text in `code` marks, not reStructuredText roles."""
    lines[:] = [re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", line) for line in lines]
    if inspect.isclass(obj) and lines and any(line.startswith("    ") for line in lines):
        shown: list[str] = []
        for line in lines:
            if (
                line.startswith("    ")
                and (not shown or not shown[-1].startswith("    "))
                and (len(shown) < 2 or shown[-2] != "::")
            ):
                shown += ["::", ""]
            shown.append(line)
        lines[:] = shown


def setup(app: Any) -> None:
    """Connect the above."""
    app.connect("source-read", _read)
    app.connect("autodoc-process-docstring", _plain)
