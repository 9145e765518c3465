"""Models of real shapes with random weights, and requests of an exact number of tokens."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from tfrnet.data.examples import Example
from tfrnet.data.requests import Request

ANSWER_TOKENS = 32
_MOST_WORDS = 8192
_END = "<end>"

SHAPES: dict[str, dict[str, Any]] = {
    # For tests: all that a decoder has, in no time.
    "tiny": {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 320,
        "tie_word_embeddings": True,
    },
    # SmolLM2-135M
    "135m": {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
    },
    # LLaMA 3.2 1B
    "1b": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "tie_word_embeddings": True,
    },
    # LLaMA 7B
    "7b": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "vocab_size": 32000,
        "tie_word_embeddings": False,
    },
}


@dataclass(frozen=True)
class Sizes:
    """How many examples a request, the retain data and the guard have."""

    forget: int = 8
    retain: int = 24
    guard: int = 64


def build_model(
    shape: str, device: torch.device, seed: int = 0, dtype: torch.dtype | None = None
) -> PreTrainedModel:
    """Return a random model, made on the device: if not said, bfloat16 on a GPU, else float32."""
    config = LlamaConfig(
        **SHAPES[shape],
        max_position_embeddings=4096,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    dtype = dtype or (torch.bfloat16 if device.type == "cuda" else torch.float32)
    torch.manual_seed(seed)
    with device:
        return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def build_tokenizer(shape: str) -> PreTrainedTokenizerFast:
    """Return a tokenizer to which every word is one token."""
    count = min(SHAPES[shape]["vocab_size"], _MOST_WORDS)
    words = {_END: 0} | {f"w{number}": number for number in range(1, count)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=_END))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=_END, pad_token=_END)


class Writer:
    """Writes random examples, never the same twice."""

    def __init__(self, shape: str, length: int, seed: int = 0) -> None:
        if length < 4:
            raise ValueError("an example needs at least 4 tokens")
        self._words = min(SHAPES[shape]["vocab_size"], _MOST_WORDS)
        self._length = length
        self._answer = min(ANSWER_TOKENS, length // 2)
        self._random = random.Random(seed)
        self._written = 0

    def examples(self, count: int) -> list[Example]:
        """Return new examples of exactly the asked length."""
        return [self._example() for _ in range(count)]

    def request(self, count: int) -> Request:
        """Return a new request."""
        return Request(f"request-{self._written}", tuple(self.examples(count)))

    def _example(self) -> Example:
        self._written += 1
        words = [f"w{self._random.randrange(1, self._words)}" for _ in range(self._length)]
        # The first words spell the example's number, so that two examples always differ.
        words[:3] = [f"w{1 + self._written // 200**place % 200}" for place in range(3)]
        return Example(_joined(words[: -self._answer]), _joined(words[-self._answer :]))


def _joined(words: Sequence[str]) -> str:
    return " ".join(words)
