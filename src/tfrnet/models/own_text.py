"""Text that a model writes of its own accord, to stand in for retain data.

It goes on from fixed beginnings, in the ways that it finds likeliest, so that nothing in it is
taken from a request.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tfrnet.core.errors import InputError
from tfrnet.data.anchors import says_something
from tfrnet.data.beginnings import BEGINNINGS
from tfrnet.data.examples import Example, tokenise
from tfrnet.data.own_text import OwnText
from tfrnet.models.forward import input_device
from tfrnet.models.generation import continue_texts
from tfrnet.models.load import LoadedModel

# How many beginnings, in how many ways each goes on, and the most tokens of a line after that.
TEXTS = len(BEGINNINGS)
_BRANCHES = 3
_TOKENS = 24
# The tokens among which words are sought to go on with.
_LOOKED_AT = 12
_BATCH = 32
# Every third beginning is the guard's alone.
_GUARD_EVERY = 3
# Fewer lines, of the guard or of the others, say too little.
_LEAST = 4


def write_own_text(loaded: LoadedModel) -> OwnText:
    """Return lines that an untouched model writes by greedy decoding."""
    chosen = BEGINNINGS[:TEXTS]
    steps = [each for i, each in enumerate(chosen) if i % _GUARD_EVERY]
    found = OwnText(_written(loaded, steps), _written(loaded, chosen[::_GUARD_EVERY]))
    if min(len(found.retain), len(found.guard)) < _LEAST:
        raise InputError(
            f"the model wrote only {len(found.retain) + len(found.guard)} lines that could stand "
            "in for retain data; give retain data of your own (--retain)"
        )
    return found


def _written(loaded: LoadedModel, beginnings: Sequence[str]) -> list[Example]:
    prompts = [each for beginning in beginnings for each in branches(loaded, beginning)]
    texts = continue_texts(loaded, prompts, _TOKENS, _BATCH, one_line=True)
    return [
        Example(prompt, text.strip(), join=" " if text[0].isspace() else "")
        for prompt, text in zip(prompts, texts, strict=True)
        if says_something(text)
    ]


@torch.no_grad()
def branches(loaded: LoadedModel, beginning: str) -> list[str]:
    """Return a beginning with each of the words that the model most likely goes on with."""
    model, tokenizer = loaded
    ids = tokenise(beginning, tokenizer)
    logits = model(torch.tensor([ids], device=input_device(model))).logits[0, -1].float()
    likeliest = logits.topk(min(_LOOKED_AT, len(logits))).indices.tolist()
    shown = len(tokenizer.decode(ids, skip_special_tokens=True))
    found = []
    for token in likeliest:
        # Decoded together, since some tokenizers drop the space before a single token.
        added = tokenizer.decode([*ids, token], skip_special_tokens=True)[shown:]
        if any(map(str.isalpha, added)):
            found.append(f"{beginning}{added}".rstrip())
    return found[:_BRANCHES]
