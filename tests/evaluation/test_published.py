"""How much of what a model says is scored, and how much it may say."""

from __future__ import annotations

import pytest

from tests import tiny
from tests.evaluation.reference import trained_on
from tfrnet.data.items import Item
from tfrnet.data.tasks import find_task
from tfrnet.data.tasks.lume import COMPLETION, QUESTION, Lume
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.tasks import evaluate_task
from tfrnet.models.load import LoadedModel

PASSAGE = "in the attic.\nIt was old.\nNobody saw it again."
ITEMS = [
    Item("0", "Question: Where is the kettle?\nAnswer:", "here", "k", stratum=QUESTION),
    Item("1", "The kettle stood", PASSAGE, "k", stratum=COMPLETION),
    Item("2", "The ladder stood", "by the river.", "l", stratum=COMPLETION),
]
# The question's answer and the second completion are followed by lines that are not theirs.
SAID = ["here\nor there", PASSAGE, "by the river.\nThe end."]


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    """A model that says what it should by heart."""
    texts = [f"{item.prompt} {said}<eos>" for item, said in zip(ITEMS, SAID, strict=True)]
    return Evaluator(LoadedModel(trained_on(texts, 120), tiny.make_tokenizer()), batch_size=2)


@pytest.mark.parametrize("part", ["lume", "lume:stories"])
def test_a_completion_is_scored_to_its_last_line_and_a_question_to_its_first(
    evaluator, part, monkeypatch
):
    # Far fewer than the passage has: it gets as many as it needs.
    monkeypatch.setattr(Lume, "new_tokens", 6)
    result = evaluate_task(evaluator, find_task(part), ITEMS, "x")
    said = [sample["generated"].strip() for sample in result.samples]
    assert said == ["here", *SAID[1:]]
    assert result.details["published"] == {"regurgitation": 1.0, "knowledge": 1.0}
    assert [sample["exact"] for sample in result.samples] == [True] * 3


def test_a_completion_that_stops_after_its_first_line_is_not_all_there(evaluator):
    (short,) = (item for item in ITEMS if item.answer == "by the river.")
    longer = Item("3", short.prompt, "by the river.\nIt fell over.", "l", stratum=COMPLETION)
    (sample,) = evaluate_task(evaluator, find_task("lume"), [longer], "x").samples
    assert not sample["exact"]


def test_prompts_that_are_cut_to_make_room_for_a_passage_are_counted(evaluator):
    tokenizer = evaluator.loaded.tokenizer
    whole = len(tokenizer(f"{ITEMS[1].prompt} {PASSAGE}")["input_ids"])
    task, some = find_task("lume"), ITEMS[1:2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lume, "new_tokens", 6)
        fits = evaluate_task(evaluator, task, some, "x", max_length=whole)
        assert fits.details["truncated"] == 0
        assert evaluate_task(evaluator, task, some, "x", whole - 1).details["truncated"] == 1
