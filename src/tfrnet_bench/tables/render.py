"""Tables as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

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
    rows = [*table.rows, *table.footer]
    body = markdown_table(table.columns, rows, table.text_columns)
    parts = [f"**{table.title}**", body, table.note]
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], text_columns: int
) -> str:
    """Return a table on its own; the columns after the first `text_columns` are aligned right."""
    rules = ["---"] * text_columns + ["---:"] * (len(columns) - text_columns)
    return "\n".join(_markdown_line(line) for line in (columns, rules, *rows))


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


def _markdown_line(entries: Sequence[object]) -> str:
    return "| " + " | ".join(str(entry).replace("|", "\\|") for entry in entries) + " |"


def _latex_line(entries: Sequence[Entry]) -> str:
    return " & ".join(escape_latex(str(entry)) for entry in entries) + " \\\\\n"
