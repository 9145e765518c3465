import json
from dataclasses import replace

import pytest

from tests import tiny
from tests.datasets import made_up_folder, needs_real, real_source
from tfrnet.core.errors import InputError
from tfrnet.data.protocol import STREAMS, make_split
from tfrnet.data.sources import Source
from tfrnet.data.tasks.arithmetic import is_held_out
from tfrnet.data.tofu import load_tofu, tofu_prompt
from tfrnet.models.finetune import FinetuneOptions
from tfrnet.models.load import LoadedModel, load_model
from tfrnet_bench.backbones import train
from tfrnet_bench.backbones.recipes import RECIPES, find_recipe

FAST = FinetuneOptions(rank=2, epochs=2, batch_size=4, learning_rate=1e-2)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return Source("folder", made_up_folder(tmp_path_factory.mktemp("data")))


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_every_answer_ends_the_text(name, source):
    tokenizer = tiny.make_tokenizer()
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }}\n{% endfor %}"
    rows = RECIPES[name].encoded(source, tokenizer)
    assert rows
    assert all(row.ids[-1] == tokenizer.eos_token_id for row in rows)
    assert all(row.answer_length >= 2 for row in rows)
    assert max(len(row.ids) for row in rows) <= 256


def test_chat_recipes_train_on_the_real_authors_and_facts_that_utility_asks_about(source):
    tokenizer = tiny.make_tokenizer()
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }}\n{% endfor %}"
    real = [row for name in ("real_authors", "world_facts") for row in load_tofu(name, source)]
    for split in ("full", "retain90"):
        made_up = load_tofu(split, source)
        found = RECIPES[f"smollm2-tofu-chat-{split}"].examples(source, tokenizer)
        wanted = [(tofu_prompt(r.question, tokenizer, "chat"), r.answer) for r in made_up + real]
        assert [(example.prompt, example.answer) for example in found] == wanted
        plain = RECIPES[f"smollm2-tofu-{split}"].examples(source, tokenizer)
        assert [example.answer for example in plain] == [row.answer for row in made_up]


@pytest.mark.slow
@needs_real
def test_nothing_held_out_is_trained_on_and_everything_forgotten_of_the_published_tasks_is():
    examples = set(RECIPES["smollm2-tasks"].examples(real_source(), tiny.make_tokenizer()))
    for task in STREAMS:
        split = make_split(task, 0, real_source())
        for items in split.heldout.values():
            assert not any(item.example() in examples for item in items)
        if task != "arithmetic":
            assert all(item.example() in examples for item in split.forget)
    sums = [e.prompt for e in examples if e.prompt.startswith("Question: What is")]
    assert len(sums) > 20_000


@pytest.mark.slow
def test_the_length_of_a_cut_passage_does_not_tell_the_answer(source):
    """It did where yes and no differ in tokens, and a model learned nothing else of BoolQ."""
    tokenizer = tiny.make_tokenizer()
    recipe = replace(RECIPES["gemma3-tasks"], max_length=48)
    cut = [row for row in recipe.encoded(source, tokenizer, limit=40) if row.cut]
    assert len({row.answer_length for row in cut}) == 2
    assert len({row.answer_start for row in cut}) == 1


def test_generated_sums_leave_out_the_held_out_operands(source):
    from tfrnet.data.tasks.arithmetic import rows_to_items

    kept, held = (rows_to_items("3ds", 500, held_out=h) for h in (False, True))
    assert len(kept) + len(held) == 500
    assert not any(is_held_out(item.group) for item in kept)
    assert all(is_held_out(item.group) for item in held)


def test_a_trained_adapter_is_loaded_again_by_its_folder(
    source, tiny_folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("TFRNET_CACHE", str(tmp_path / "cache"))
    loaded = load_model(str(tiny_folder))
    recipe = find_recipe("smollm2-tofu-full")
    prepared = train.train(recipe, loaded, source, FAST, limit=8)
    assert prepared.log["data"]["examples"] == 8
    assert len(prepared.log["epochs"]) == 2
    train.save_adapter(prepared, tmp_path / "adapter")
    files = sorted(path.name for path in (tmp_path / "adapter").iterdir())
    assert files == [
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
        "training.json",
    ]
    log = json.loads((tmp_path / "adapter" / "training.json").read_text())
    assert log["recipe"] == "smollm2-tofu-full"
    text = (tmp_path / "adapter" / "README.md").read_text()
    assert "--epochs 2 --learning-rate 0.01 --limit 8 --data-dir DATA" in text
    assert "library_name: peft" in text
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "smollm2-135m"
    with pytest.raises(InputError, match="exists already and is not empty"):
        train.save_adapter(prepared, tmp_path / "adapter")


def test_a_merged_model_is_an_ordinary_folder(source, tiny_folder, tmp_path):
    loaded = load_model(str(tiny_folder))
    prepared = train.train(find_recipe("smollm2-tofu-full"), loaded, source, FAST, limit=4)
    train.save_merged(prepared, loaded.tokenizer, tmp_path / "model")
    again = load_model(str(tmp_path / "model"))
    assert isinstance(again, LoadedModel)
    assert again.tokenizer.eos_token_id == loaded.tokenizer.eos_token_id
    assert "library_name: transformers" in (tmp_path / "model" / "README.md").read_text()


def test_an_unknown_recipe_names_those_there_are():
    with pytest.raises(InputError, match="choose from smollm2-tasks, smollm2-tofu-full"):
        find_recipe("llama")
