"""Warnings before harm, from the data alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfrnet.data.cautions import cautions
from tfrnet.data.examples import Example
from tfrnet.data.language import guess_language, script
from tfrnet.data.requests import Request

COUNTRIES = ("France", "Japan", "Italy", "Egypt", "Spain", "Peru", "Chad", "Cuba", "Iran", "Iraq")
RETAIN = [
    Example(f"The {what} of {country} is", f"number {n}")
    for n, country in enumerate(COUNTRIES)
    for what in ("capital", "flag", "anthem", "longest river", "largest lake")
]
NEAR = Request("near", (Example("The capital of Portugal is", "Lisbon"),))


def said(requests: list[Request], retain=RETAIN, is_checked=True) -> list[str]:
    return cautions(requests, retain, retain, is_checked)


def test_good_data_give_no_warning() -> None:
    assert len(RETAIN) == 50
    assert said([NEAR]) == []


def test_few_retain_lines() -> None:
    (line,) = said([NEAR], RETAIN[:49])
    assert line.startswith("the retain data has 49 lines; with fewer than 50 ")


def test_guard_and_retain_are_the_same_lines() -> None:
    (line,) = said([NEAR], is_checked=False)
    assert line.startswith("the guard's examples are among those that requests use")


def test_no_retain_line_in_the_language() -> None:
    request = Request("f", (Example("La capitale du Portugal est", "Lisbonne"),))
    lines = said([NEAR, request])
    assert any(
        "no retain line that requests can use seems to be in French, as request f:" in line
        for line in lines
    )
    assert all("tfrnet anchors" in line for line in lines)
    french = Example("La couleur de la place dans le village est", "grise")
    assert not any("French" in line for line in said([request], [*RETAIN, french]))


def test_no_retain_line_in_the_script() -> None:
    request = Request("r", (Example("Столица Португалии", "Лиссабон"),))
    assert any("in Cyrillic script, as request r" in line for line in said([request]))


def test_no_retain_line_near_the_topic() -> None:
    far = [Request(f"far-{n}", (Example("Jane Roe lives in", "Ohio"),)) for n in range(5)]
    (line,) = [line for line in said([NEAR, *far]) if "topic" in line]
    assert "near the topic of requests far-0, far-1, far-2, ... " in line


def test_only_what_requests_can_hold_protects() -> None:
    """Lines that are the guard's alone, or left to it, do not."""
    held = [each for each in RETAIN if "capital" not in each.prompt]
    french = Request("f", (Example("La capitale du Portugal est", "Lisbonne"),))
    guard = [Example("La capitale du Pérou est", "Lima"), *RETAIN]
    lines = cautions([NEAR, french], RETAIN, held, is_checked=True)
    assert any("near the topic of requests near, f " in line for line in lines)
    assert any(
        "no retain line that requests can use seems to be in French" in line for line in lines
    )
    assert cautions([NEAR, french], RETAIN, [*held, *guard], is_checked=True) == []


def test_a_long_passage() -> None:
    text = "The capital of France is far away. " * 20
    request = Request("long", (Example("", text, is_text=True),))
    (line,) = said([request])
    assert line.startswith("request long has a passage of more than 80 words")
    assert "tfrnet split-text" in line
    # Which cuts plain texts only.
    assert said([Request("long", (Example("Tell me.", text),))]) == []


def test_a_large_request() -> None:
    few = Request("few", tuple(replace(NEAR.examples[0], answer=str(i)) for i in range(64)))
    many = Request("many", (*few.examples, *NEAR.examples))
    (line,) = said([few, many])
    assert line.startswith("request many has more than 64 examples")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The capital of Portugal is Lisbon", "english"),
        ("La capitale du Portugal est Lisbonne", "french"),
        ("Die Hauptstadt von Portugal ist Lissabon", "german"),
        ("La capital de España es Madrid", "spanish"),
        ("My phone number is 555-1234", ""),  # too little to tell
        ("Столица России", ""),
        ("", ""),
    ],
)
def test_a_language_is_guessed_only_where_one_stands_out(text: str, language: str) -> None:
    assert guess_language(text) == language


def test_scripts() -> None:
    assert script("Paris 2024") == "latin"
    assert script("Москва and") == "cyrillic"
    assert script("123 ...") == ""
