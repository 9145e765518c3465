"""Text that a model writes of its own accord, to stand in for retain data.

It begins with the words that the model itself finds likeliest at the beginning of a text, so that
nothing in it comes from a request.
"""

from __future__ import annotations

import torch

from tfrnet.core.errors import InputError
from tfrnet.data.anchors import says_something
from tfrnet.data.examples import Example
from tfrnet.models.forward import input_device
from tfrnet.models.generation import continue_texts
from tfrnet.models.load import LoadedModel

# The most lines, and the most tokens that the model adds to the first word of each.
LINES = 192
_TOKENS = 24
_BATCH = 8
# Fewer protect too little.
_LEAST = 12
# Every third line is for the guard, so that no step uses it as retain data.
_GUARD_EVERY = 3


def write_own_text(loaded: LoadedModel) -> list[Example]:
    """Return lines that an untouched model writes by greedy decoding, each from its own word."""
    words = first_words(loaded, 2 * LINES)[:LINES]
    texts = continue_texts(loaded, words, _TOKENS, _BATCH, one_line=True)
    found = [
        Example(word, text.strip(), join=" " if text[0].isspace() else "")
        for word, text in zip(words, texts, strict=True)
        if says_something(text)
    ]
    if len(found) < _LEAST:
        raise InputError(
            f"the model wrote only {len(found)} lines that could stand in for retain data; give "
            "retain data of your own (--retain)"
        )
    return found


def for_guard(lines: list[Example]) -> list[Example]:
    """Return the lines of a model's own text that guard examples are drawn from."""
    return lines[::_GUARD_EVERY]


def for_steps(lines: list[Example]) -> list[Example]:
    """Return the lines of a model's own text that serve as retain data: all others."""
    return [line for i, line in enumerate(lines) if i % _GUARD_EVERY]


@torch.no_grad()
def first_words(loaded: LoadedModel, count: int) -> list[str]:
    """Return the words among the `count` tokens that a text most likely begins with, in order."""
    model, tokenizer = loaded
    begin = next(
        token for token in (tokenizer.bos_token_id, tokenizer.eos_token_id, 0) if token is not None
    )
    logits = model(torch.tensor([[begin]], device=input_device(model))).logits[0, -1].float()
    likeliest = logits.topk(min(count, len(logits))).indices.tolist()
    words = (tokenizer.decode([token], skip_special_tokens=True).strip() for token in likeliest)
    return list(dict.fromkeys(word for word in words if any(map(str.isalpha, word))))
