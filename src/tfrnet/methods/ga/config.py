"""Settings of GA: names, defaults, ranges and help texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tfrnet.training.training_settings import AscentSettings


@dataclass(frozen=True)
class GAConfig(AscentSettings):
    """Settings of gradient ascent."""

    about: ClassVar[str] = "gradient ascent on the forget answers, without retain data"
    tuned: ClassVar[Mapping[str, Any]] = {
        "learning_rate": 5e-05,
        "steps": 10,
        "forget_ceiling": 6.0,
    }


CONFIG = GAConfig
