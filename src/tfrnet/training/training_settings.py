"""The settings that all training methods share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tfrnet.core.settings import Settings, option
from tfrnet.models.lora import LoraOptions

_WITH_LORA = {"trained": ("lora",)}


@dataclass(frozen=True)
class TrainingSettings(Settings):
    """What is trained, how, and on what. Defaults are those of the methods' sources, on a stream.

    The optimiser is made anew for each request; a step sees the whole request at once.
    """

    # What the search chose, if it was run.
    tuned: ClassVar[Mapping[str, Any]] = {}

    trained: Literal["full", "lora"] = option(
        "full", "full: the weights themselves; lora: a low-rank adapter beside them (PEFT)"
    )
    learning_rate: float = option(1e-5, "step size of AdamW", 0)
    lora_factor: float = option(
        10.0, "factor on the learning rate of an adapter", 0, when=_WITH_LORA
    )
    steps: int = option(5, "optimiser steps per request", 1, 10_000)
    weight_decay: float = option(0.0, "decoupled weight decay of AdamW", 0)
    retain_batch: int = option(8, "retain examples per step, new ones each time", 1)
    loss_tokens: Literal["answer", "all"] = option(
        "answer", "forget tokens that the loss is on: the answer's, or the prompt's as well"
    )
    end_token: bool = option(True, "the end of the text counts as the answer's last token")
    rank: int = option(8, "rank of the adapter", 1, when=_WITH_LORA)
    alpha: float = option(16, "scale of the adapter is alpha / rank", 0, when=_WITH_LORA)
    target_modules: str | tuple[str, ...] = option(
        "all-linear",
        "projections that get an adapter; all-linear, names or a pattern",
        when=_WITH_LORA,
    )
    max_length: int = option(
        256, "longest example in tokens; a longer one keeps its answer and the prompt's end", 2
    )
    guard_examples: int = option(64, "examples of the guard, fixed for the life of a state", 1)
    use_guard: bool = option(False, "reject a request that breaks the guard")
    guard_relative: float = option(0.05, "largest relative rise of the guard loss per request", 0)
    guard_absolute: float = option(0.0, "largest absolute rise of the guard loss per request", 0)

    def lora(self, seed: int) -> LoraOptions:
        """Return the adapter to train."""
        return LoraOptions(self.rank, self.alpha, self.target_modules, seed)

    @classmethod
    def presets(cls) -> dict[str, Mapping[str, Any]]:
        """`default` holds the sources' numbers, `tuned` what the search chose, if it was run."""
        return {"default": {}} | ({"tuned": cls.tuned} if cls.tuned else {})
