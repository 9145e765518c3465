"""What an oracle is trained without, and that this can be checked from its folder."""

import hashlib
import json
from dataclasses import replace

import pytest

from tests import tiny
from tests.datasets import made_up_folder, needs_real, real_source
from tfrnet.core.errors import InputError
from tfrnet.data.examples import Example
from tfrnet.data.forgotten import (
    Forgotten,
    digest_of,
    digest_of_answer,
    forgotten_items,
    read_forgotten,
)
from tfrnet.data.items import Item
from tfrnet.data.protocol import STREAMS, Sizes, make_split
from tfrnet.data.sources import Source
from tfrnet.models.finetune import FinetuneOptions
from tfrnet.models.load import load_model
from tfrnet_bench.backbones import train
from tfrnet_bench.backbones.card import card, command
from tfrnet_bench.backbones.recipes import find_recipe

SMALL = Sizes(requests=2, request_size=2, forget_eval=4, heldout=4, retain=(4, 2), guard=(2, 1))
FAST = FinetuneOptions(rank=2, epochs=1, batch_size=4, learning_rate=1e-2)
TASKS = find_recipe("smollm2-tasks")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return Source("folder", made_up_folder(tmp_path_factory.mktemp("data")))


@pytest.fixture(scope="module")
def forgotten(source):
    return forgotten_items([3, 4], source, sizes=SMALL)


def test_a_digest_is_of_prompt_and_answer_and_nothing_else():
    text = '["Is it so?", "yes"]'
    assert (
        digest_of(Example("Is it so?", "yes", line=7))
        == (hashlib.sha256(text.encode()).hexdigest()[:16])
    )
    assert digest_of(Example("Is it so?", "no")) != digest_of(Example("Is it so?", "yes"))


def test_all_streams_of_all_seeds_are_left_out_and_what_says_the_same(source, forgotten):
    wanted = [
        item
        for seed in (3, 4)
        for stream in STREAMS
        for item in make_split(stream, seed, source, SMALL).forget
    ]
    items = TASKS.items(source, tiny.make_tokenizer())
    kept = forgotten.left_out(items)
    assert len(forgotten.digests) == len({(item.prompt, item.answer) for item in wanted})
    says = {(item.group, item.answer) for item in wanted}
    assert kept == [item for item in items if (item.group, item.answer) not in says]
    assert 0 < len(items) - len(kept) <= len(wanted) * 2


SUM = Item("a", "Question: What is 3 plus 58?\nAnswer:", "61", group="operands: [3, 58]")
OLD = Item("b", "It stood.\nQuestion: is it old?\nAnswer:", "yes", group="passage: It stood.")


@pytest.mark.parametrize(
    ("item", "is_left_out"),
    [
        (SUM, True),
        (replace(SUM, prompt="Question: What is 58 plus 3?\nAnswer:"), True),
        (replace(SUM, prompt="Question: What is 58 minus 3?\nAnswer:", answer="55"), False),
        (replace(SUM, prompt="Question: What is 60 plus 1?", group="operands: [1, 60]"), False),
        (replace(OLD, prompt="It stood.\nQuestion: was it there?\nAnswer:"), True),
        (replace(OLD, prompt="It stood.\nQuestion: did it fall?\nAnswer:", answer="no"), False),
    ],
)
def test_the_same_answer_in_other_words_is_left_out_too(item, is_left_out):
    found = Forgotten(
        (3,),
        ("boolq",),
        frozenset(digest_of(known.example()) for known in (SUM, OLD)),
        frozenset(map(digest_of_answer, (SUM, OLD))),
    )
    assert found.left_out([item]) == ([] if is_left_out else [item])
    # As an oracle of before was made.
    before = replace(found, answers=frozenset())
    assert before.left_out([item]) == ([] if item in (SUM, OLD) else [item])


def test_an_oracle_of_before_is_read_and_misses_nothing(source, forgotten, tmp_path):
    written = forgotten.to_dict()
    del written["answers"]
    (tmp_path / "without.json").write_text(json.dumps(written))
    found = read_forgotten(tmp_path)
    assert found == replace(forgotten, answers=frozenset())
    assert found.missing(make_split("boolq", 3, source, SMALL)) == 0


def test_a_forgotten_item_among_the_training_examples_is_refused(source, forgotten):
    item = make_split("boolq", 3, source, SMALL).forget[0]
    forgotten.refuse_known([Example("another", "one")])
    with pytest.raises(InputError, match="1 of the training examples are to be forgotten"):
        forgotten.refuse_known([Example("another", "one"), item.example()])


def test_an_oracle_of_other_seeds_does_not_fit_a_stream(source, forgotten):
    assert forgotten.missing(make_split("openbookqa", 4, source, SMALL)) == 0
    more = Sizes(requests=4, request_size=2, forget_eval=4, heldout=4, retain=(4, 2), guard=(2, 1))
    assert 0 < forgotten.missing(make_split("openbookqa", 4, source, more)) <= 4


def test_an_oracle_says_in_its_folder_what_it_never_saw(source, forgotten, tiny_folder, tmp_path):
    loaded = load_model(str(tiny_folder))
    prepared = train.train(TASKS, loaded, source, FAST, limit=8, without=forgotten)
    folder = tmp_path / "oracle"
    train.save_adapter(prepared, folder)
    assert read_forgotten(folder) == forgotten
    log = json.loads((folder / "training.json").read_text())
    assert log["without"] == {
        "seeds": [3, 4],
        "streams": list(STREAMS),
        "items": len(forgotten.digests),
        "answers": len(forgotten.answers),
    }
    assert "--without 3,4" in command(log)
    assert f"{len(forgotten.digests)} items were left out" in card(log)
    assert "So were all others that share with one of them the answer" in card(log)


def test_a_folder_that_does_not_say_so_is_no_oracle(tmp_path):
    with pytest.raises(InputError, match="prepare --without SEEDS"):
        read_forgotten(tmp_path)
    (tmp_path / "without.json").write_text("[]")
    with pytest.raises(InputError, match="is not a file made by"):
        read_forgotten(tmp_path)


def test_bad_seeds_and_recipes_without_streams_are_refused(source, forgotten, tiny_folder):
    with pytest.raises(InputError, match="none of them below 0"):
        forgotten_items([-1], source, sizes=SMALL)
    with pytest.raises(InputError, match="--without cannot be used with smollm2-tofu-full"):
        loaded = load_model(str(tiny_folder))
        recipe = find_recipe("smollm2-tofu-full")
        train.train(recipe, loaded, source, FAST, limit=4, without=forgotten)


@pytest.mark.slow
@needs_real
def test_every_published_item_of_a_seed_was_known_and_is_left_out():
    """Arithmetic's requests come from the published probes, which the training only partly has."""
    source = real_source()
    found = forgotten_items([3], source)
    items = TASKS.items(source, tiny.make_tokenizer())
    assert len(found.digests) == 3 * 160
    before = replace(found, answers=frozenset())
    assert 2 * 160 <= len(items) - len(before.left_out(items)) <= 3 * 160 + 10
    assert len(before.left_out(items)) - len(found.left_out(items)) > 60
