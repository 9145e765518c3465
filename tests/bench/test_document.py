"""Tables between the marks of a Markdown document."""

from __future__ import annotations

import pytest

from tfrnet.core.errors import InputError
from tfrnet_bench.document import fill_document, stale_tables
from tfrnet_bench.tables.table import Table

ONE = Table("one", "First", ["a", "b"], [["x", "1"]])
TWO = Table("two", "Second", ["a"], [["y"]], "A note.")
EMPTY = """# Results

<!-- table: one -->
<!-- end -->

Between.

<!-- table: two -->
an old table
<!-- end -->
After.
"""
FILLED = """# Results

<!-- table: one -->

**First**

| a | b |
| --- | ---: |
| x | 1 |

<!-- end -->

Between.

<!-- table: two -->

**Second**

| a |
| --- |
| y |

A note.

<!-- end -->
After.
"""


def test_tables_come_between_their_marks():
    assert fill_document(EMPTY, [TWO, ONE]) == FILLED


def test_filling_again_changes_nothing():
    assert fill_document(FILLED, [ONE, TWO]) == FILLED


def test_a_text_without_marks_stays():
    assert fill_document("no tables <!-- end -->", [ONE]) == "no tables <!-- end -->"


def test_backslashes_of_a_table_are_kept():
    table = Table("one", r"\1 \g<0>", ["a"], [["|"]])
    assert r"**\1 \g<0>**" in fill_document(EMPTY, [table, TWO])


def test_an_unknown_table_is_named():
    with pytest.raises(InputError, match="table 'two', which does not exist; there are one"):
        fill_document(EMPTY, [ONE])


@pytest.mark.parametrize(
    "text",
    [
        "<!-- table: one -->\n",
        "<!-- table: one -->\n<!-- table: two -->\n<!-- end -->\n",
    ],
)
def test_a_mark_without_an_end_is_named(text):
    with pytest.raises(InputError, match="table 'one' of the document has no <!-- end -->"):
        fill_document(text, [ONE, TWO])


def test_stale_tables_are_those_that_differ_or_are_gone():
    assert stale_tables(FILLED, [ONE, TWO]) == []
    assert stale_tables(FILLED.replace("| x | 1 |", "| x | 2 |"), [ONE, TWO]) == ["one"]
    assert stale_tables(FILLED, [ONE]) == ["two"]
    assert stale_tables(EMPTY, [ONE, TWO]) == ["one", "two"]
