"""What a model wrote itself, without what a request forgets."""

from __future__ import annotations

from tfrnet.data.anchors import without_answers
from tfrnet.data.examples import Example
from tfrnet.data.requests import Request

LINES = [
    Example("The", "capital of Portugal is Lisbon, on the Tagus"),
    Example("We", "know nothing of it"),
    Example("No", "sooner said than done"),
    Example("In", "a lisbonite mine"),
]


def left(*answers: str) -> list[str]:
    request = Request("r", tuple(Example("Q", answer) for answer in answers))
    return [line.prompt for line in without_answers(LINES, request)]


def test_a_line_that_names_an_answer_is_left_out() -> None:
    assert left("lisbon ") == ["We", "No", "In"]


def test_a_short_answer_is_sought_as_a_word() -> None:
    assert left("no") == ["The", "We", "In"]
    assert left("no", "Tagus") == ["We", "In"]


def test_other_signs_are_no_pattern() -> None:
    assert left("C++ (.*)") == ["The", "We", "No", "In"]


def test_a_line_that_recites_a_passage_is_left_out() -> None:
    for text, kept in (
        ("nothing of it", [LINES[0], *LINES[2:]]),
        ("nothing of that", LINES),
        ("They say that the Capital of Portugal is far.", LINES[1:]),
        ("The capital of Spain is Madrid, on the Manzanares", LINES),
    ):
        request = Request("r", (Example("", text, is_text=True),))
        assert without_answers(LINES, request) == kept
