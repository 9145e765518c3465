"""Random answers are of the same kind as the true one, differ from it, and hang on the seed."""

import pytest

from tfrnet.data.examples import Example
from tfrnet.methods.o3.targets import REFUSALS, random_targets


def _answers(answers, *key, prompt="Q:", **options):
    examples = [Example(prompt, answer) for answer in answers]
    return [example.answer for example in random_targets(examples, *key, **options)]


def test_an_integer_becomes_another_of_as_many_digits():
    for true in ("7", " 42", "-365", "1000.", "0"):
        drawn = {_answers([true], seed)[0] for seed in range(300)}
        assert true not in drawn
        assert {len(text) for text in drawn} == {len(true)}
        assert all(text.strip(" -.").isdigit() for text in drawn)
        # The sign, the space and the full stop stay where they were.
        assert {text[: len(true) - len(true.lstrip(" -"))] for text in drawn} == {
            true[: len(true) - len(true.lstrip(" -"))]
        }
        assert all(text.strip(" -.")[0] != "0" or len(text) == 1 for text in drawn)
    assert len({_answers(["7"], seed)[0] for seed in range(300)}) == 9


@pytest.mark.parametrize(
    ("true", "other"),
    [("yes", "no"), (" No", " Yes"), ("TRUE", "FALSE"), ("false.", "true."), ("Yes\n", "No\n")],
)
def test_a_two_way_answer_is_turned(true, other):
    assert {_answers([true], seed)[0] for seed in range(20)} == {other}


def test_the_true_answer_may_be_drawn_where_that_is_wanted():
    assert {_answers(["yes"], s, include_true=True)[0] for s in range(40)} == {"yes", "no"}
    assert len({_answers(["7"], s, include_true=True)[0] for s in range(300)}) == 10
    drawn = {_answers(["red", "blue"], s, include_true=True)[0] for s in range(40)}
    assert drawn == {"red", "blue"}


def test_options_in_the_prompt_are_drawn_from():
    prompt = "Which?\nA. the sun\nB. a stone\nC) rain\nAnswer:"
    assert {_answers([" B", "x"], s, prompt=prompt)[0] for s in range(60)} == {" A", " C"}
    drawn = {_answers(["rain", "x"], s, prompt=prompt)[0] for s in range(60)}
    assert drawn == {"the sun", "a stone"}


def test_other_answers_of_the_request_stand_in():
    answers = ["red", "blue", " red", "word " * 13, "green"]
    assert {_answers(answers, seed)[0] for seed in range(80)} == {"blue", "green"}


def test_long_and_lone_answers_are_refused():
    assert {_answers(["word " * 13, "red"], seed)[0] for seed in range(200)} == set(REFUSALS)
    assert _answers(["red"], 0)[0] in REFUSALS
    assert _answers(["red", "red "], 0)[0] in REFUSALS
    assert set(_answers(["7", "yes", "red"], 0, refuse=True)) <= set(REFUSALS)


def test_targets_hang_on_the_key_and_on_the_place():
    answers = [str(number) for number in range(1000, 1020)]
    assert _answers(answers, 1, 2) == _answers(answers, 1, 2)
    assert _answers(answers, 1, 2) != _answers(answers, 1, 3)
    assert len(set(_answers(["1000"] * 20, 0))) > 10


def test_prompts_stay():
    examples = [Example(f"Q{number}:", "12") for number in range(3)]
    assert [e.prompt for e in random_targets(examples)] == ["Q0:", "Q1:", "Q2:"]
