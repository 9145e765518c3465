"""Text that a model writes itself, and how it is divided."""

from __future__ import annotations

import pytest
import torch

from tests import tiny
from tfrnet.core.errors import InputError
from tfrnet.models import own_text
from tfrnet.models.load import LoadedModel
from tfrnet.models.own_text import first_words, for_guard, for_steps, write_own_text


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return LoadedModel(tiny.make_trained_model(), tiny.make_tokenizer())


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_text, "LINES", 20)


def test_it_begins_with_the_words_that_the_model_finds_likeliest(loaded: LoadedModel) -> None:
    with torch.no_grad():
        logits = loaded.model(torch.tensor([[loaded.tokenizer.eos_token_id]])).logits[0, -1]
    tokens = logits.argsort(descending=True).tolist()[:30]
    words = [loaded.tokenizer.decode([token]).strip() for token in tokens]
    expected = [word for word in words if any(letter.isalpha() for letter in word)]
    assert first_words(loaded, 30) == list(dict.fromkeys(expected))


def test_it_is_what_the_model_says_greedily(loaded: LoadedModel, few: None) -> None:
    lines = write_own_text(loaded)
    assert 12 <= len(lines) <= 20
    assert len(set(lines)) == len(lines)
    assert lines == write_own_text(loaded)
    line = lines[0]
    ids = loaded.tokenizer(line.prompt, return_tensors="pt")
    with torch.no_grad():
        said = loaded.model.generate(**ids, max_new_tokens=24, do_sample=False)[0]
    whole = loaded.tokenizer.decode(said, skip_special_tokens=True).partition("\n")[0]
    assert line.joined == whole.strip()


def test_no_line_is_for_both_guard_and_steps(loaded: LoadedModel, few: None) -> None:
    lines = write_own_text(loaded)
    guard, steps = for_guard(lines), for_steps(lines)
    assert guard
    assert not set(guard) & set(steps)
    assert sorted([*guard, *steps], key=str) == sorted(lines, key=str)
    assert len(steps) > len(guard)


def test_a_model_that_writes_too_little_is_refused(loaded: LoadedModel, monkeypatch) -> None:
    monkeypatch.setattr(own_text, "LINES", 5)
    with pytest.raises(InputError, match=r"wrote only \d lines .* give retain data of your own"):
        write_own_text(loaded)
