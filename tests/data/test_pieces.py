"""Passages cut into pieces, and lines that a model writes near requests."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from tfrnet.data.anchors import anchor_prompts, anchors
from tfrnet.data.examples import Example
from tfrnet.data.pieces import cut_passage, cut_request, pieces
from tfrnet.data.requests import Request
from tfrnet.data.words import word_ends


def test_pieces_end_with_sentences() -> None:
    text = "One two three. Four five! Six seven eight nine. Ten."
    assert pieces(text, 5) == ["One two three. Four five!", "Six seven eight nine. Ten."]
    assert pieces(text, 3) == ["One two three.", "Four five!", "Six seven eight", "nine. Ten."]
    assert [e.joined for e in cut_passage("東京です。大きい。", 5)] == [
        "東京です。",
        "東京です。大きい。",
    ]


@given(st.text(min_size=1).filter(str.strip), st.integers(1, 7))
def test_no_word_is_lost_or_too_much(text: str, most: int) -> None:
    found = pieces(text, most)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(1 <= len(word_ends(piece)) <= most for piece in found)


@given(st.text(min_size=1).filter(str.strip), st.integers(1, 7))
def test_every_piece_stands_so_in_the_text(text: str, most: int) -> None:
    assert all(example.joined in text for example in cut_passage(text, most))


def test_lines_of_a_poem_stay_apart() -> None:
    text = "Roses are red,\nViolets are blue.\n\nSugar is sweet,\nAnd so are you."
    first, second = cut_passage(text, 7)
    assert first.answer == "Roses are red,\nViolets are blue."
    assert second.answer == text


def test_a_book_is_cut_in_time_that_grows_with_its_length() -> None:
    text = "So it goes on, and on. " * 40_000  # the square of which would take minutes
    start = time.process_time()
    assert len(pieces(text)) == 6_667
    assert time.process_time() - start < 10


def test_each_piece_begins_with_the_end_of_the_one_before() -> None:
    words = " ".join(f"w{n}" for n in range(30))
    first, second = cut_passage(f"{words}. Then this.", 30)
    assert first == Example("", f"{words}.", is_text=True)
    last = " ".join(f"w{n}" for n in range(18, 30))
    assert second == Example("", f"{last}. Then this.", is_text=True)


def test_only_long_texts_of_a_request_are_cut() -> None:
    short = Example("", "A short text.", is_text=True)
    answer = Example("Prompt", "a " * 100)
    long = Example("", "One two three four five. Six seven.", is_text=True)
    cut = cut_request(Request("r", (short, answer, long)), 5)
    assert cut.id == "r"
    assert cut.examples == (short, answer, *cut_passage(long.answer, 5))


REQUESTS = [
    Request(
        "r",
        (
            Example("La capitale du Portugal est", "Lisbonne"),
            Example("", "Une phrase secrète sur la ville.", is_text=True),
        ),
    )
]


def test_the_model_is_given_first_words_in_the_language() -> None:
    prompts = anchor_prompts(REQUESTS)
    assert prompts[:2] == ["La capitale du", "Une phrase secrète"]
    assert "Le marché a" in prompts  # an everyday sentence in French
    assert not any("Lisbonne" in prompt for prompt in prompts)
    assert anchor_prompts([Request("r", (Example("", "word"),))]) == []


def test_a_line_that_recites_a_passage_or_a_long_answer_is_left_out() -> None:
    passage = "It was the best of times, it was the worst of times."
    whole = Request("p", (Example("", passage, is_text=True),))
    told = ["best of TIMES; it was the worst", "worst of days for a long walk", "Best of times!"]
    for request in (whole, cut_request(whole, 8)):
        found = anchors([request], ["It was the", "It is the", "These are the"], told)
        assert [example.prompt for example in found] == ["It is the", "These are the"]


def test_a_line_with_the_answer_is_left_out() -> None:
    texts = ["Portugal est LISBONNE, bien sûr", "trop court", "sur une petite place"]
    assert anchors(REQUESTS, ["La capitale du", "Elle", "Il habite"], texts) == [
        Example("Il habite", "sur une petite place")
    ]
