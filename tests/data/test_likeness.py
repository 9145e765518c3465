"""Likeness by characters, and words and sentences without knowing the language."""

from __future__ import annotations

import pytest

from tfrnet.data.likeness import Texts, likeness, nearest, trigrams
from tfrnet.data.words import sentences, word_ends


def test_trigrams_set_words_apart() -> None:
    assert trigrams("Ab  c") == {" ab", "ab ", "b c", " c "}
    assert trigrams("") == frozenset()


def test_likeness_is_a_share() -> None:
    assert likeness(trigrams("abc"), trigrams("abc abd")) == 1
    assert likeness(trigrams("abc"), trigrams("xyz")) == 0
    assert likeness(frozenset(), trigrams("abc")) == 0


def test_the_nearest_are_on_the_same_topic_or_in_the_same_language() -> None:
    kept = [
        "The capital of France is Paris",
        "Bees make honey",
        "La capitale de la France est Paris",
        "Les abeilles font du miel dans la ruche",
    ]
    sets = [trigrams(text) for text in kept]
    assert nearest(["The capital of Portugal is Lisbon"], sets, 1) == [0]
    assert nearest(["Le village et la place dans la montagne"], sets, 2) == [3, 2]


@pytest.mark.parametrize(
    ("text", "words"),
    [("one two  three", ["one", "two", "three"]), ("東京 is", ["東", "京", "is"]), (" ", [])],
)
def test_words(text: str, words: list[str]) -> None:
    ends = word_ends(text)
    starts = [0, *ends]
    assert [text[s:e].strip() for s, e in zip(starts, ends, strict=False)] == words


def test_sentences() -> None:
    assert sentences('He said "No!" Then he left. 3.5 km on.\n\nThe end') == [
        'He said "No!"',
        "Then he left.",
        "3.5 km on.",
        "The end",
    ]
    assert sentences("東京です。大きい。") == ["東京です。", "大きい。"]


def test_the_largest_likeness_of_many_texts_is_found_at_once() -> None:
    texts = ["the capital of Spain", "le chat noir", "", "capital letters", "the the the"]
    sets = [trigrams(text) for text in texts]
    for text in ("The Capital of Portugal", "noir", "xyz", "", "the"):
        wanted = trigrams(text)
        assert Texts(texts).likeness(text) == max(likeness(wanted, each) for each in sets)
    assert Texts([]).likeness("anything") == 0
