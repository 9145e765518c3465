"""Settings of RMU: names, defaults, ranges and help texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tfrnet.core.settings import option
from tfrnet.training.training_settings import TrainingSettings


@dataclass(frozen=True)
class RMUConfig(TrainingSettings):
    """Settings of RMU."""

    about: ClassVar[str] = "RMU: steers hidden states of forget data to a random direction"
    tuned: ClassVar[Mapping[str, Any]] = {
        "learning_rate": 0.005,
        "steps": 16,
        "retain_weight": 1.0,
    }
    published: ClassVar[Mapping[str, Any]] = {
        "learning_rate": 0.00025,
        "steps": 16,
        "retain_weight": 1.0,
        "scale_skips_first": False,
    }

    learning_rate: float = option(5e-5, "step size of AdamW", 0)
    steps: int = option(8, "batches per request", 1, 10_000)
    forget_batch: int = option(4, "forget examples per step, taken in turn", 1)
    retain_batch: int = option(4, "retain examples per step, new ones each time", 1)
    layer: int = option(7, "layer whose output is steered, counted from 0", 0)
    trained_layers: tuple[int, ...] | None = option(
        None, "layers that are trained; none means the steered one and the two before it", 0
    )
    trained_module: str = option("mlp.down_proj", "projection of these layers that is trained")
    coefficient: float = option(0.0, "length of the target vector; 0 means adaptive", 0)
    scale: float = option(
        5.0, "adaptive: length of the target relative to the mean length of the hidden states", 0
    )
    scale_skips_first: bool = option(
        True,
        "adaptive: leave the first token, whose hidden state is huge in many models, out of the "
        "mean length",
        before=False,
    )
    retain_weight: float = option(1200.0, "alpha, weight of the retain term", 0)
    end_token: bool = option(False, "count the end-of-text token as part of an answer")


CONFIG = RMUConfig
