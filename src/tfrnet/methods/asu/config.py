"""Settings of ASU: names, defaults, ranges and help texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tfrnet.core.settings import option
from tfrnet.training.training_settings import TrainingSettings


@dataclass(frozen=True)
class ASUConfig(TrainingSettings):
    """Settings of ASU."""

    about: ClassVar[str] = "ASU: distillation from the model with its attention smoothed"
    tuned: ClassVar[Mapping[str, Any]] = {
        "learning_rate": 2e-05,
        "steps": 10,
        "forget_weight": 1.0,
        "temperature": 2.3,
    }
    published: ClassVar[Mapping[str, Any]] = {
        "learning_rate": 5e-05,
        "steps": 10,
        "forget_weight": 1.0,
    }

    weight_decay: float = option(0.01, "decoupled weight decay of AdamW", 0)
    alpha: float = option(32, "lora: scale of the adapter is alpha / rank", 0)
    temperature: float = option(2.3, "tau, the divisor of the teacher's attention scores", 1)
    smoothed_layers: tuple[int, ...] | None = option(
        None, "layers whose attention the teacher smooths; none means all", 0
    )
    forget_weight: float = option(0.1, "weight of the forget loss", 0)
    retain_weight: float = option(1.0, "weight of the retain loss", 0)
    reference: Literal["previous", "start"] = option(
        "start", "teacher: the model before this request, or before the first"
    )


CONFIG = ASUConfig
