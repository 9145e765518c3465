"""Greedy continuations."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tfrnet.models.forward import input_device
from tfrnet.models.load import LoadedModel


@torch.no_grad()
def continue_texts(loaded: LoadedModel, prompts: Sequence[str], max_new_tokens: int) -> list[str]:
    """Return what the model adds to each prompt, one at a time, so that padding plays no part."""
    model, tokenizer = loaded
    continuations = []
    for prompt in prompts:
        ids = torch.tensor([tokenizer(prompt)["input_ids"]], device=input_device(model))
        output = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            pad_token_id=tokenizer.pad_token_id or tokenizer.eos_token_id,
        )
        added = output[0, ids.shape[1] :]
        continuations.append(tokenizer.decode(added, skip_special_tokens=True))
    return continuations
