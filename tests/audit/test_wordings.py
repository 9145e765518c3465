"""Other wordings: what each rule makes of an example, in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrnet.audit.wordings import wordings
from tfrnet.data.examples import Example


def chat(message: str, beginning: str) -> str:
    return f"<user>{message}<assistant>{beginning}"


def by_kind(example: Example) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for wording in wordings(example, chat):
        pair = wording.example.prompt, wording.example.answer
        found.setdefault(wording.kind, []).append(pair)
    return found


def test_a_prompt_with_its_answer() -> None:
    assert by_kind(Example("In 1990, Jane Roe lived in", "Springfield, Ohio")) == {
        "own": [("In 1990, Jane Roe lived in", "Springfield, Ohio")],
        "first_words": [("In 1990, Jane Roe lived in Springfield,", " Ohio")],
        "question": [("Question: In 1990, Jane Roe lived in what?\nAnswer:", "Springfield, Ohio")],
        "cloze": [
            (
                "Fill in the blank: In 1990, Jane Roe lived in ____.\nThe blank is",
                "Springfield, Ohio",
            )
        ],
        "order": [("Jane Roe lived in ____, in 1990.\nThe blank is", "Springfield, Ohio")],
        "chat": [
            (
                "<user>Please complete this: In 1990, Jane Roe lived in"
                "<assistant>In 1990, Jane Roe lived in",
                "Springfield, Ohio",
            )
        ],
    }


def test_a_question_is_turned_into_a_statement() -> None:
    (question,) = by_kind(Example("Where does Jane Roe live?", "Springfield"))["question"]
    assert question == (
        "I was asked: Where does Jane Roe live? The right answer is",
        "Springfield",
    )


def test_a_name_keeps_its_capital_letter_when_clauses_move() -> None:
    (moved,) = by_kind(Example("Jane Roe, born in 1970, lives in", "Springfield"))["order"]
    assert moved[0] == "Lives in ____, Jane Roe, born in 1970.\nThe blank is"


def test_a_passage() -> None:
    words = [f"w{n}" for n in range(1, 15)]
    text = " ".join(words[:6]) + ". " + " ".join(words[6:]) + "."
    assert by_kind(Example("", text, is_text=True)) == {
        "own": [("w1 w2 w3 w4 w5 w6. w7", " w8 w9 w10 w11 w12 w13 w14.")],
        "first_words": [("w1 w2 w3 w4 w5 w6.", " w7 w8 w9 w10 w11 w12 w13 w14.")],
        "part": [
            ("w1 w2 w3 w4 w5 w6. w7", " w8 w9 w10 w11 w12 w13 w14."),
            ("w1 w2 w3 w4 w5 w6. w7 w8 w9 w10", " w11 w12 w13 w14."),
        ],
        "cloze": [
            (
                "Fill in the blank: w2 w3 w4 w5 w6. w7 w8 w9 w10 w11 w12 w13 ____.\nThe blank is",
                "w14",
            )
        ],
        "order": [
            (
                "w7 w8 w9 w10 w11 w12 w13 w14. w1 w2 w3 w4 w5 w6.",
                " w7 w8 w9 w10 w11 w12 w13 w14.",
            )
        ],
        "chat": [
            (
                "<user>Please complete this: w1 w2 w3 w4 w5 w6.<assistant>w1 w2 w3 w4 w5 w6.",
                " w7 w8 w9 w10 w11 w12 w13 w14.",
            )
        ],
    }


@pytest.mark.parametrize(
    ("example", "kinds"),
    [
        (Example("Paris", "France"), {"own"}),
        (Example("", "France"), {"own"}),
        (Example("Paris", "is in France"), {"own", "first_words"}),
        (Example("", "Three words only", is_text=True), set()),
    ],
)
def test_what_is_too_short_has_no_other_words(example: Example, kinds: set[str]) -> None:
    assert set(by_kind(example)) == kinds


def test_without_a_chat_template_there_is_no_chat() -> None:
    kinds = {wording.kind for wording in wordings(Example("Jane Roe lives in", "Springfield"))}
    assert kinds == {"own", "question", "cloze"}


def test_an_answer_is_asked_for_only_as_far_as_eight_words() -> None:
    long = " ".join(f"w{n}" for n in range(20))
    assert by_kind(Example("It begins", long))["own"] == [("It begins", "w0 w1 w2 w3 w4 w5 w6 w7")]


def test_a_script_without_spaces_is_cut_too() -> None:
    found = by_kind(Example("", "日本の首都は東京です。大きい街です。", is_text=True))
    assert {"own", "first_words", "part", "cloze", "order", "chat"} == set(found)


def test_a_prompt_of_separators_has_no_clauses() -> None:
    assert "order" not in by_kind(Example("\u3002 \u3002", "Tokyo"))


@given(st.text(min_size=1).filter(str.strip), st.text(min_size=1).filter(str.strip), st.booleans())
def test_no_wording_is_empty(prompt: str, answer: str, is_text: bool) -> None:
    example = Example("" if is_text else prompt, answer, is_text=is_text)
    for wording in wordings(example, chat):
        assert wording.example.answer.strip()
        if wording.kind != "own":
            assert wording.example.prompt.strip()
