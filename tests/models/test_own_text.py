"""Text that a model writes itself, and how it is divided."""

from __future__ import annotations

import json

import pytest
import torch

from tests import tiny
from tfrnet.core.errors import InputError
from tfrnet.data.beginnings import BEGINNINGS
from tfrnet.data.own_text import OwnText
from tfrnet.models import own_text
from tfrnet.models.load import LoadedModel
from tfrnet.models.own_text import branches, write_own_text


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return LoadedModel(tiny.make_trained_model(), tiny.make_tokenizer())


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_text, "TEXTS", 8)


def test_there_are_at_most_192_lines() -> None:
    assert len(set(BEGINNINGS)) == len(BEGINNINGS) == 64
    assert own_text.TEXTS * own_text._BRANCHES == 192


def test_a_beginning_goes_on_with_the_likeliest_words(loaded: LoadedModel) -> None:
    ids = loaded.tokenizer("Item 4 of the", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logits = loaded.model(ids).logits[0, -1]
    words = [loaded.tokenizer.decode([token]) for token in logits.argsort(descending=True)[:12]]
    expected = [f"Item 4 of the{word}" for word in words if any(map(str.isalpha, word))]
    found = branches(loaded, "Item 4 of the")
    assert found == expected[:3]
    assert {"Item 4 of the very", "Item 4 of the old"} <= set(found)


def test_it_is_what_the_model_says_greedily(loaded: LoadedModel, few: None) -> None:
    found = write_own_text(loaded)
    assert found == write_own_text(loaded)
    line = found.retain[0]
    ids = loaded.tokenizer(line.prompt, return_tensors="pt")
    with torch.no_grad():
        said = loaded.model.generate(**ids, max_new_tokens=24, do_sample=False)[0]
    whole = loaded.tokenizer.decode(said, skip_special_tokens=True).partition("\n")[0]
    assert line.joined == whole.strip()


def test_the_guards_lines_have_beginnings_of_their_own(loaded: LoadedModel, few: None) -> None:
    found = write_own_text(loaded)
    lines = [*found.retain, *found.guard]
    assert len(set(lines)) == len(lines) <= 24
    for part, places in ((found.guard, (0, 3, 6)), (found.retain, (1, 2, 4, 5, 7))):
        beginnings = tuple(BEGINNINGS[i] for i in places)
        assert len(part) >= 4
        assert all(line.prompt.startswith(beginnings) for line in part)


def test_it_is_read_as_it_was_written(loaded: LoadedModel, few: None) -> None:
    found = write_own_text(loaded)
    assert OwnText.from_dict(json.loads(json.dumps(found.to_dict())), "test") == found


def test_a_model_that_writes_too_little_is_refused(loaded: LoadedModel, monkeypatch) -> None:
    monkeypatch.setattr(own_text, "TEXTS", 2)
    with pytest.raises(InputError, match=r"wrote only \d lines .* give retain data of your own"):
        write_own_text(loaded)
