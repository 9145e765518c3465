"""JSON that any two readers understand alike."""

from __future__ import annotations

import pytest

from tfrnet.core import strict_json


def test_ordinary_json_is_read() -> None:
    found = strict_json.parse('{"a": [1, -2.5e3, 1e300, null, true, "\\u00e9"]}')
    assert found == {"a": [1, -2500.0, 1e300, None, True, "\u00e9"]}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1, "a": 1}', "the key 'a' appears twice"),
        ("NaN", "NaN is not a JSON value"),
        ("[-Infinity]", "-Infinity is not a JSON value"),
        ("1e999", "the number 1e999 is too large"),
        ("-1e999", "the number -1e999 is too large"),
        ("1" * 101, "a number has 101 digits"),
        ("[" * 100_000, "it is nested too deeply"),
    ],
)
def test_what_readers_may_take_in_different_ways_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        strict_json.parse(text)
