"""Tables as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from tfrnet_bench.tables.table import Entry, Table

_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        # After the end of a row a bare bracket would be its optional argument.
        "[": "{[}",
        "±": r"$\pm$",
    }
)


def markdown(table: Table) -> str:
    """Return the title, the table and its note."""
    rules = ["---"] * table.text_columns
    rules += ["---:"] * (len(table.columns) - table.text_columns)
    lines = [_markdown_line(table.columns), _markdown_line(rules)]
    lines += [_markdown_line(row) for row in (*table.rows, *table.footer)]
    parts = [f"**{table.title}**", "\n".join(lines), table.note]
    return "\n\n".join(part for part in parts if part) + "\n"


def csv_text(table: Table) -> str:
    """Return the columns' names and the rows."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table.columns, *table.rows, *table.footer])
    return text.getvalue()


def latex(table: Table) -> str:
    """Return a floating table as wide as the text; needs the packages booktabs and graphicx."""
    numbers = len(table.columns) - table.text_columns
    note = f"\\par\\smallskip\\footnotesize {escape_latex(table.note)}\n" if table.note else ""
    body = "".join(_latex_line(row) for row in (*table.rows, *table.footer))
    return (
        "% needs \\usepackage{booktabs,graphicx}\n"
        "\\begin{table}\n"
        "\\centering\n"
        f"\\caption{{{escape_latex(table.title)}}}\n"
        f"\\label{{tab:{table.name}}}\n"
        "\\resizebox{\\linewidth}{!}{%\n"
        f"\\begin{{tabular}}{{{'l' * table.text_columns}{'r' * numbers}}}\n"
        "\\toprule\n"
        f"{_latex_line(table.columns)}"
        "\\midrule\n"
        f"{body}"
        "\\bottomrule\n"
        "\\end{tabular}}\n"
        f"{note}"
        "\\end{table}\n"
    )


def escape_latex(text: str) -> str:
    """Return text that LaTeX prints as it is."""
    return text.translate(_LATEX)


def _markdown_line(entries: Sequence[Entry]) -> str:
    return "| " + " | ".join(str(entry).replace("|", "\\|") for entry in entries) + " |"


def _latex_line(entries: Sequence[Entry]) -> str:
    return " & ".join(escape_latex(str(entry)) for entry in entries) + " \\\\\n"
