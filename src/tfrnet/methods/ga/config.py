"""Settings of GA: names, defaults, ranges and help texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tfrnet.core.settings import option
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
    # With a ceiling that counts the end of the text, which left most requests without a step.
    published: ClassVar[Mapping[str, Any]] = {
        "learning_rate": 5e-05,
        "steps": 10,
        "forget_ceiling": 6.0,
        "ceiling_counts_end": True,
        "end_token": True,
    }

    end_token: bool = option(False, "count the end-of-text token as part of an answer")


CONFIG = GAConfig
