import pytest
import torch

from tests import tiny
from tfrnet.data.items import Question
from tfrnet.evaluation.ranking import Ranking, accuracy, encode_choices, rank


def test_the_highest_sum_is_chosen_and_the_first_of_equals():
    assert Ranking((-4.0, -9.1, -3.9, -12.0), gold=2).correct
    assert Ranking((-2.0, -2.0), gold=0).chosen == 0
    assert not Ranking((-2.0, -1.0), gold=0).correct


def test_the_four_ways_to_choose():
    """V3."""
    ranking = Ranking(
        (-4.0, -9.1, -3.9, -12.0),
        gold=0,
        choices=("ice", "a frozen lake", "sun", "the big warm sea"),
        unconditional=(-5.0, -12.5, -3.0, -16.0),
    )
    assert ranking.chosen == 2
    assert ranking.chosen_norm == 1
    assert ranking.chosen_bytes == 1
    assert ranking.chosen_mutual_info == 3


def test_bytes_are_not_characters():
    """V3: café has 4 characters in 5 bytes, naïve 5 in 6."""
    ranking = Ranking((-4.0, -4.9), gold=0, choices=("café", "naïve"))
    assert ranking.chosen_norm == 1  # -1.0 against -0.98
    assert ranking.chosen_bytes == 0  # -0.8 against -0.8167
    assert Ranking((-2.0, -2.0), gold=0, choices=("a", "b")).chosen_bytes == 0


def test_accuracy_is_in_percent():
    rankings = [Ranking((-1.0, -2.0), 0), Ranking((-1.0, -2.0), 1), Ranking((-1.0, -2.0), 1)]
    assert accuracy(rankings) == pytest.approx(100 / 3)


@pytest.mark.parametrize("batch_size", [1, 7])
def test_log_likelihoods_are_sums_over_the_choices_tokens(batch_size):
    model, tokenizer = tiny.make_model(), tiny.make_tokenizer()
    questions = [Question("Item 3 is", ("red", "green blue")), Question("The old box", ("white",))]
    rankings = rank(model, tokenizer, questions, batch_size)
    for question, ranking in zip(questions, rankings, strict=True):
        start = len(tokenizer(question.prompt)["input_ids"])
        for choice, found in zip(question.choices, ranking.log_likelihoods, strict=True):
            ids = tokenizer(f"{question.prompt} {choice}")["input_ids"]
            log_p = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)
            expected = sum(log_p[i - 1, ids[i]] for i in range(start, len(ids)))
            assert found == pytest.approx(expected.item(), rel=1e-5)


def test_all_choices_follow_the_same_part_of_a_prompt_that_is_cut():
    question = Question("The old box is " * 20, ("red", "green blue 7"))
    short, long = encode_choices(question, tiny.make_tokenizer(), 24, "question 1")
    assert short.answer_length < long.answer_length
    assert short.ids[: short.answer_start] == long.ids[: long.answer_start]
    assert len(long.ids) == 24
