"""Plain ways to ask a model, one example and one pass at a time, to compare the real ones with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, wraps

import pytest
import torch
from transformers import LlamaForCausalLM, PreTrainedModel

from tests import tiny


@torch.no_grad()
def vocabulary_log_probs(model: PreTrainedModel, ids: Sequence[int]) -> torch.Tensor:
    """Return the log-probabilities after each token. Shape [N, V], float64."""
    return torch.log_softmax(model(input_ids=torch.tensor([list(ids)])).logits[0].double(), -1)


def answer_log_probs(model: PreTrainedModel, ids: Sequence[int], start: int) -> list[float]:
    """Return the log-probability of each token from number `start` on."""
    log_p = vocabulary_log_probs(model, ids)
    return [log_p[p - 1, ids[p]].item() for p in range(start, len(ids))]


def answer_hits(model: PreTrainedModel, ids: Sequence[int], start: int) -> list[bool]:
    """Return whether each token from number `start` on is the likeliest."""
    best = vocabulary_log_probs(model, ids).argmax(-1).tolist()
    return [best[p - 1] == ids[p] for p in range(start, len(ids))]


@torch.no_grad()
def greedy(model: PreTrainedModel, ids: Sequence[int], count: int, end: int = 0) -> list[int]:
    """Return the likeliest tokens one after another, up to `end`, without a cache."""
    added: list[int] = []
    while len(added) < count:
        token = int(model(input_ids=torch.tensor([[*ids, *added]])).logits[0, -1].argmax())
        if token == end:
            break
        added.append(token)
    return added


def watch_passes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return a list that the input shape of every pass of a LLaMA is added to.

    The class is watched: a hook on a model, or a `forward` of its own, would be a part of it.
    """
    seen: list[tuple[int, int]] = []
    forward = LlamaForCausalLM.forward

    @wraps(forward)
    def watched(self, *arguments, **named):
        seen.append(tuple(named["input_ids"].shape))
        return forward(self, *arguments, **named)

    monkeypatch.setattr(LlamaForCausalLM, "forward", watched)
    return seen


def matches(generated: str, gold: str) -> tuple[bool, bool]:
    """The rule of evaluation.md 1.5 once more: exact, strict."""
    text = generated.split("\n")[0].strip()
    found = re.match(r"-?\d[\d,]*", text)
    strict = text == gold.strip()
    if not found or re.match(r"\d|\.\d", text[found.end() :]):
        return False, strict
    return int(found.group().replace(",", "")) == int(gold), strict


@cache
def _weights(texts: tuple[str, ...], steps: int) -> dict[str, torch.Tensor]:
    tokenizer, model = tiny.make_tokenizer(), tiny.make_model()
    rows = [tokenizer(text)["input_ids"] for text in texts]
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    attention = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    labels = ids.masked_fill(attention == 0, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
    for _ in range(steps):
        loss = model(ids, attention_mask=attention, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def trained_on(texts: Iterable[str], steps: int = 35) -> PreTrainedModel:
    """Return a small model that knows these texts by heart."""
    model = tiny.make_model()
    model.load_state_dict(_weights(tuple(texts), steps))
    return model
