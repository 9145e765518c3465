"""Tables as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io

import pytest

from tfrnet.core.errors import InputError
from tfrnet_bench.tables.render import csv_text, escape_latex, latex, markdown
from tfrnet_bench.tables.table import Table, Value

TABLE = Table(
    "some-name",
    "A title of 100 %",
    ["Method", "F_avg"],
    [["a|b", "1.00 ± 0.50"], ["[c], d", "2.00"]],
    "R & F.",
)


def test_markdown():
    assert markdown(TABLE) == (
        "**A title of 100 %**\n\n"
        "| Method | F_avg |\n"
        "| --- | ---: |\n"
        "| a\\|b | 1.00 ± 0.50 |\n"
        "| [c], d | 2.00 |\n\n"
        "R & F.\n"
    )


def test_a_value_is_written_with_its_note_and_the_footer_below_the_rows():
    value = Value("1.0", 1.0, note="± 0.2", hint="n = 3")
    table = Table("t", "T", ["a", "b"], [["x", value]], footer=[["floor", "0.5"]])
    for render, row in ((markdown, "| x | 1.0 ± 0.2 |"), (csv_text, "x,1.0 ± 0.2")):
        lines = render(table).splitlines()
        assert "floor" in lines[lines.index(row) + 1]


def test_csv_reads_back():
    assert list(csv.reader(io.StringIO(csv_text(TABLE)))) == [TABLE.columns, *TABLE.rows]


def test_latex():
    text = latex(TABLE)
    assert "\\caption{A title of 100 \\%}" in text
    assert "\\label{tab:some-name}" in text
    assert "\\begin{tabular}{lr}\n\\toprule\nMethod & F\\_avg \\\\\n\\midrule\n" in text
    assert "a|b & 1.00 $\\pm$ 0.50 \\\\\n{[}c], d & 2.00 \\\\\n\\bottomrule" in text
    assert "R \\& F." in text


def test_what_latex_would_read_as_commands_is_escaped():
    assert escape_latex("50 % of a_b & c#d $1 {x} ~ ^ \\ <>") == (
        r"50 \% of a\_b \& c\#d \$1 \{x\} \textasciitilde{} \textasciicircum{} "
        r"\textbackslash{} \textless{}\textgreater{}"
    )


def test_a_row_of_another_width_is_refused():
    with pytest.raises(InputError, match="1 cells for 2 columns"):
        Table("t", "T", ["a", "b"], [["x"]])
