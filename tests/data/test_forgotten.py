"""What an oracle is trained without, and that this can be checked from its folder."""

import hashlib
import json

import pytest

from tests import tiny
from tests.datasets import made_up_folder, needs_real, real_source
from tfrnet.core.errors import InputError
from tfrnet.data.examples import Example
from tfrnet.data.forgotten import (
    Forgotten,
    digest_of,
    forgotten_items,
    read_forgotten,
)
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


def test_all_streams_of_all_seeds_are_left_out_and_nothing_else(source, forgotten):
    wanted = {
        (item.prompt, item.answer)
        for seed in (3, 4)
        for stream in STREAMS
        for item in make_split(stream, seed, source, SMALL).forget
    }
    examples = TASKS.examples(source, tiny.make_tokenizer())
    kept = forgotten.left_out(examples)
    assert len(forgotten.digests) == len(wanted)
    assert {(e.prompt, e.answer) for e in examples} - {(e.prompt, e.answer) for e in kept} == (
        wanted & {(e.prompt, e.answer) for e in examples}
    )
    assert 0 < len(examples) - len(kept) <= len(wanted) * 2


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
    }
    assert "--without 3,4" in command(log)
    assert f"{len(forgotten.digests)} items were left out" in card(log)


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
    examples = TASKS.examples(source, tiny.make_tokenizer())
    assert len(found.digests) == 3 * 160
    assert isinstance(found, Forgotten)
    assert 2 * 160 <= len(examples) - len(found.left_out(examples)) <= 3 * 160 + 10
