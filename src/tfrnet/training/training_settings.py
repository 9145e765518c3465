"""Settings that training methods share. No torch here: `tfrnet settings` does without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tfrnet.core.guarded_settings import GuardedSettings
from tfrnet.core.settings import Settings, option, same_as

if TYPE_CHECKING:
    from tfrnet.models.lora import LoraOptions

_WITH_LORA = {"trained": ("lora",)}


@dataclass(frozen=True)
class LoopSettings(Settings):
    """What is trained, how, and on what. Defaults follow the methods' publications.

    Each request gets a new optimiser, and each step uses the whole request.
    """

    trained: Literal["full", "lora"] = option(
        "full", "full: all weights; lora: a low-rank adapter (PEFT)"
    )
    learning_rate: float = option(1e-5, "learning rate of AdamW", 0)
    lora_factor: float = option(
        10.0, "the adapter's learning rate is learning_rate times this", 0, when=_WITH_LORA
    )
    steps: int = option(5, "optimiser steps per request", 1, 10_000)
    weight_decay: float = option(0.0, "decoupled weight decay of AdamW", 0)
    retain_batch: int = option(8, "retain examples per step, a new sample each time", 1)
    loss_tokens: Literal["answer", "all"] = option(
        "answer", "forget tokens in the loss: the answer's, or all with the prompt's"
    )
    end_token: bool = option(True, "count the end-of-text token as part of an answer")
    rank: int = option(8, "rank of the adapter", 1, when=_WITH_LORA)
    alpha: float = option(16, "scale of the adapter is alpha / rank", 0, when=_WITH_LORA)
    target_modules: str | tuple[str, ...] = option(
        "all-linear",
        "projections with an adapter: all-linear, a list of names, or a regular expression",
        when=_WITH_LORA,
    )

    def lora(self, seed: int) -> LoraOptions:
        """Return the adapter to train."""
        from tfrnet.models.lora import LoraOptions

        return LoraOptions(self.rank, self.alpha, self.target_modules, seed)


@dataclass(frozen=True)
class TrainingSettings(GuardedSettings, LoopSettings):
    """The settings of all methods that train. Their publications have no guard, so it is off."""

    # What `tfrnet search` chose, if it was run on the method as it is.
    tuned: ClassVar[Mapping[str, Any]] = {}
    # What the published results were computed with, if there are any.
    published: ClassVar[Mapping[str, Any]] = {}

    use_guard: bool = same_as(GuardedSettings, "use_guard", default=False)

    @classmethod
    def presets(cls) -> dict[str, Mapping[str, Any]]:
        """Return `default`, the sources' values, and where there are such, the two others."""
        found = {"default": {}, "tuned": cls.tuned, "published": cls.published}
        return {name: values for name, values in found.items() if values or name == "default"}


@dataclass(frozen=True)
class AscentSettings(TrainingSettings):
    """Settings of gradient ascent."""

    forget_ceiling: float | None = option(
        None, "forget loss in nats at which training on a request stops; none means no limit", 0
    )
    ceiling_counts_end: bool = option(
        False,
        "count the end-of-text token in forget_ceiling, if it is trained; it may rise alone",
        before=True,
    )
