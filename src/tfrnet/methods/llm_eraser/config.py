"""Settings of LLM-Eraser: names, defaults, ranges and help texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tfrnet.core.errors import InputError
from tfrnet.core.settings import option
from tfrnet.training.training_settings import TrainingSettings


@dataclass(frozen=True)
class LLMEraserConfig(TrainingSettings):
    """Settings of LLM-Eraser."""

    about: ClassVar[str] = (
        "LLM-Eraser: prunes MLP channels that serve the forget data, then trains an adapter"
    )
    tuned: ClassVar[Mapping[str, Any]] = {
        "learning_rate": 0.0005,
        "steps": 20,
        "forget_weight": 0.3,
        "score_weight": 0.2,
    }
    # Scored on answers that the model knew, the channels hardly depended on the forget data.
    published: ClassVar[Mapping[str, Any]] = {
        "learning_rate": 0.0005,
        "steps": 20,
        "forget_weight": 0.3,
        "score_tokens": "answer",
        "ranking": "global",
    }

    trained: Literal["lora"] = option("lora", "lora: a low-rank adapter beside the weights (PEFT)")
    learning_rate: float = option(1e-4, "step size of AdamW", 0)
    lora_factor: float = option(1.0, "lora: factor on the learning rate", 0)
    steps: int = option(20, "optimiser steps per request, after pruning", 1, 10_000)
    budget: int = option(128, "MLP channels that a request prunes", 0)
    max_pruned: float = option(0.04, "largest share of all MLP channels ever pruned", 0, 1)
    layers: tuple[int, ...] | None = option(
        None, "layers that are pruned; none: all but the first four and the last two", 0
    )
    score_examples: int = option(40, "retain examples that channels are scored on", 1)
    score_tokens: Literal["all", "answer"] = option(
        "all", "tokens that channels are scored on: all, or the answer's", before="answer"
    )
    ranking: Literal["layer", "global"] = option(
        "layer",
        "layer: every layer gives an equal part of the budget; global: the lowest scores of all",
        before="global",
    )
    score_weight: float = option(0.2, "weight of the forget importance in a channel's score", 0)
    forget_weight: float = option(0.01, "weight of the ascent on the forget loss", 0)
    retain_weight: float = option(1.0, "weight of the retain loss", 0)

    def __post_init__(self) -> None:
        if str(self.trained) == "full":
            raise InputError(
                "LLM-Eraser has no trained=full: it prunes channels of frozen weights and trains "
                "an adapter; use trained=lora"
            )
        if self.layers is not None and not self.layers:
            raise InputError(
                "layers is empty, so nothing would be pruned; to train only, set budget=0"
            )
        super().__post_init__()


CONFIG = LLMEraserConfig
