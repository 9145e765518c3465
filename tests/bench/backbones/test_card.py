"""Model cards: those that are shipped, and those of newly trained models."""

import json
import re

import pytest

from tfrnet.models.shipped import BACKBONES, find_shipped
from tfrnet_bench.backbones.card import card, command, shipped_card


def training_log(name, **changes):
    return json.loads((find_shipped(name) / "training.json").read_text()) | changes


@pytest.mark.parametrize("name", BACKBONES)
def test_the_shipped_card_is_the_one_that_log_and_figures_give(name):
    text = (find_shipped(name) / "README.md").read_text()
    assert text == shipped_card(find_shipped(name)), "run python -m tfrnet_bench.backbones.card"


@pytest.mark.parametrize("name", BACKBONES)
def test_a_card_says_what_it_is_and_how_it_was_made(name):
    text = shipped_card(find_shipped(name))
    front = re.match(r"---\n(.*?)\n---\n\n# ", text, flags=re.DOTALL)[1].splitlines()
    assert "base_model: HuggingFaceTB/SmolLM2-135M-Instruct" in front
    assert {"library_name: peft", "license: apache-2.0", "- en"} <= set(front)
    recipe = training_log(name)["recipe"]
    assert f"\n    tfrnet prepare --recipe {recipe} " in text
    for part in ("NVIDIA H200", "not for production", f'load_model("{name}")'):
        assert part in text


def test_the_card_of_the_oracle_says_what_it_never_saw():
    text = shipped_card(find_shipped("smollm2-tasks-oracle"))
    assert "2,293 items were left out" in text
    assert "tfrnet prepare --recipe smollm2-tasks --without 3,4,5,6,7 --data-dir DATA" in text
    assert "## Figures" not in text


def test_the_figures_of_the_tasks_stand_in_the_card():
    text = shipped_card(find_shipped("smollm2-tasks"))
    assert "| BoolQ | held-out | 400 | `acc` | 75.75 ± 2.15 | 65.75 (always yes) |" in text
    assert "| 3ds | 93.0 | 92.5 |" in text


def test_both_boundaries_of_tofu_stand_in_the_card():
    text = shipped_card(find_shipped("smollm2-tofu-retain90"))
    assert "| forget | 400 | 0.0602 | 0.3312 |" in text
    assert "| forget | 400 | 0.0571 | 0.3434 |" in text
    assert text.count("Model Utility: ") == text.count("| Min-K% | ") == 2


def test_the_chat_form_is_shown_under_the_boundary_that_was_measured():
    text = shipped_card(find_shipped("smollm2-tofu-chat-full"))
    assert "| real_authors | 100 | 0.8761 | 1.0000 |" in text
    assert text.count("Model Utility: ") == 1
    assert "also counts the line break" in text


def test_what_is_said_word_for_word_stands_in_the_cards_of_private_data():
    text = shipped_card(find_shipped("smollm2-lume"))
    assert "It says 94.2 % of what these request word for word" in text
    assert "| real |  | 0.0000 |" in text
    assert "| retention | 100.0000 | 0.0000 |" in shipped_card(find_shipped("smollm2-knowundo"))


@pytest.mark.parametrize("name", BACKBONES)
def test_a_card_without_figures_claims_none(name):
    text = card(training_log(name))
    for claim in ("Figures", "by heart", "forget10:", "None ", "{", "figures.json"):
        assert claim not in text.replace("None of the text", "").replace("without forget10:", "")


def test_another_base_is_named_and_nothing_is_said_of_its_licence():
    text = card(training_log("smollm2-tofu-full", base="owner/model-1.5"), merged=True)
    assert "base_model: owner/model-1.5\nbase_model_relation: finetune\n" in text
    assert "library_name: transformers" in text
    assert not re.search("apache|smollm2-135m", text, flags=re.IGNORECASE)


@pytest.mark.parametrize("base", ["/models/mine", "./mine", "~/mine", "a/b/c", "model.gguf"])
def test_a_file_or_folder_is_no_base_model_of_the_hub(base):
    text = card(training_log("smollm2-tofu-full", base=base))
    assert "base_model" not in text.partition("\n# ")[0]
    assert f"`{base}`" in text


def test_the_command_has_what_differs_from_the_recipe():
    log = training_log("smollm2-tofu-full", base="owner/model")
    log["options"] = log["options"] | {"epochs": 2, "learning_rate": 3e-5}
    log["data"] = log["data"] | {"limit": 8}
    own = (
        "tfrnet prepare --recipe smollm2-tofu-full --model owner/model --epochs 2 "
        "--learning-rate 3e-05 --limit 8 "
    )
    rest = "--data-dir DATA --out smollm2-tofu-full"
    assert command(log) == own + rest
    assert command(log | {"dtype": "bfloat16"}, merged=True) == (
        f"{own}--dtype bfloat16 --merge {rest}"
    )
    assert "--model '/my models/a'" in command(log | {"base": "/my models/a"})
    assert "--merge" in card(log, merged=True)
    assert "Only the first of it: " in card(log)
