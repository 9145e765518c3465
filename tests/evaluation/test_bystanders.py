"""Which items may suffer beside the forgotten ones, and what a model is told to have said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests import tiny
from tests.datasets import made_up_folder
from tfrnet.data.items import Item
from tfrnet.data.protocol import Sizes, Split, make_split
from tfrnet.data.sources import Source
from tfrnet.data.tasks import find_task
from tfrnet.evaluation.bystanders import Bystanders, Look, bystander_figures, siblings_of
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.yardsticks import bystander_summary
from tfrnet.models.load import LoadedModel

SIZES = Sizes(requests=2, request_size=2, forget_eval=4, heldout=4, retain=(6, 3), guard=(3, 2))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return Source("folder", made_up_folder(tmp_path_factory.mktemp("data")))


@pytest.fixture(scope="module")
def split(source: Source) -> Split:
    return make_split("boolq", 0, source, SIZES)


def other_words(item: Item, answer: str) -> Item:
    return replace(item, key=f"{item.key}/{answer}", prompt=f"Now: {item.prompt}", answer=answer)


def test_a_kept_item_that_answers_as_a_forgotten_one_is_no_sibling(split):
    forgotten = split.forget[0]
    (other,) = {"yes", "no"} - {forgotten.answer}
    elsewhere = replace(forgotten, group="another passage", prompt="Another question?")
    same, turned = (other_words(forgotten, answer) for answer in (forgotten.answer, other))
    loud = replace(same, answer=f" {same.answer.upper()} ", choices=())
    assert siblings_of(split, [same, loud, turned, elsewhere, forgotten]) == [turned]


def test_siblings_of_real_rows_are_on_a_forgotten_topic_and_in_no_part(split, source):
    task = find_task("boolq")
    found = siblings_of(split, task.load("train", source))
    said = {task.topic(item): item.answer for item in split.forget}
    assert found
    assert all(item.answer != said[task.topic(item)] for item in found)
    assert not set(found) & {item for items in split.parts().values() for item in items}


@pytest.mark.parametrize(
    ("said", "own", "not_language"),
    [
        (["", "  "], ["so it is", "the sun"], 100.0),
        (["so it is", "the sun"], ["", ""], 0.0),
        (["", "the sun"], ["so it is", ""], 50.0),
    ],
)
def test_a_model_that_says_nothing_has_no_perplexity_but_is_measured(said, own, not_language):
    evaluator = Evaluator(LoadedModel(tiny.make_model(), tiny.make_tokenizer()))
    beside = Bystanders("boolq", {}, [], ["The keeper said", "She saw"])
    before, now = (Look({"boolq": [1.0]}, [], texts) for texts in (own, said))
    found = bystander_figures(evaluator, beside, before, now)
    assert found["fluency"] == {
        "perplexity_ratio": None,
        "repeated": 0.0,
        "not_language": not_language,
    }
    summary = bystander_summary(found)
    assert (summary["perplexity_ratio"], summary["not_language"]) == (None, not_language)
