"""Settings of O3: names, defaults, ranges and help texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tfrnet.core.errors import InputError
from tfrnet.core.settings import option
from tfrnet.training.training_settings import TrainingSettings

if TYPE_CHECKING:
    from tfrnet.methods.o3.detector import DetectorSettings


@dataclass(frozen=True)
class O3Config(TrainingSettings):
    """Settings of O3."""

    about: ClassVar[str] = (
        "O3: an adapter with random answers, switched on by a detector of forget prompts"
    )
    tuned: ClassVar[Mapping[str, Any]] = {"learning_rate": 0.0003, "steps": 15, "gate": "tofu"}
    # On questions with choices, with answers to other questions as targets.
    published: ClassVar[Mapping[str, Any]] = {
        "learning_rate": 0.0003,
        "steps": 15,
        "gate": "tofu",
        "use_wrong_answers": False,
    }

    trained: Literal["full", "lora"] = option(
        "lora", "lora: a low-rank adapter (PEFT), which O3 requires"
    )
    learning_rate: float = option(3e-4, "step size of AdamW", 0)
    lora_factor: float = option(1.0, "lora: factor on the learning rate", 0)
    steps: int = option(15, "optimiser steps per request", 1, 10_000)
    orthogonal_weight: float = option(0.1, "lambda, weight of the overlap with earlier adapters", 0)
    targets: Literal["auto", "refusal"] = option(
        "auto", "answers to train: a random one of the same kind, or always a refusal"
    )
    use_wrong_answers: bool = option(
        True,
        "train one of an example's own wrong answers, where the request gives some",
        before=False,
    )
    include_true: bool = option(
        False, "a random answer may be the true one, as in the original code"
    )
    gate: Literal["tofu", "soft", "always"] = option(
        "tofu", "adapter's weight: the original steps for TOFU, the soft weight, or always 1"
    )
    zeta: float = option(10.0, "steepness of the weight", 0)
    nu: float = option(0.1, "largest share of outliers of the one-class SVM", 1e-3, 1)
    shrinkage: float = option(0.1, "share of the identity in the covariance", 1e-6, 1)
    held_out: float = option(
        0.2, "share of prompts held out to measure the spread of distances", 0, 1
    )
    skip_first: bool = option(
        True, "detector: skip the first token, whose hidden state is huge in many models"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trained != "lora":
            raise InputError(
                "o3 needs an adapter that is off for most prompts, so it cannot train the weights "
                "themselves; leave trained at lora"
            )

    def detector(self) -> DetectorSettings:
        """Return the settings of the detector."""
        from tfrnet.methods.o3.detector import DetectorSettings

        return DetectorSettings(self.gate, self.zeta, self.nu, self.shrinkage, self.skip_first)


CONFIG = O3Config
