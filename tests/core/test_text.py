"""What is printed shows as what it is."""

from __future__ import annotations

import unicodedata

import pytest

from tfrnet.core.text import is_printable, printable


def test_nothing_that_moves_a_cursor_or_hides_is_printed_as_it_is() -> None:
    hidden = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    # Format characters beyond the basic plane, and signs before numbers, are seen or do nothing.
    beside = {"\u0600", "\u0601", "\u0602", "\u0603", "\u0604", "\u0605", "\u06dd", "\u070f"}
    beside |= {"\u0890", "\u0891", "\u08e2"}
    for code in range(0x10000):
        character = chr(code)
        expected = unicodedata.category(character) not in hidden or character in beside
        if expected != is_printable(character):
            # What Python's tables do not know yet in that block is refused as well.
            assert 0x2060 <= code <= 0x206F, hex(code)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢字 🙂", "plain é 漢字 🙂"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\r", "a\\x0ab\\x0d"),
        ("bad\ud800id", "bad\\ud800id"),
        ("left\u202eright", "left\\u202eright"),
    ],
)
def test_what_would_not_show_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert shown.encode()  # any stream can hold it
