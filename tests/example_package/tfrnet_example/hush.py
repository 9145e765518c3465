"""Hush: the channels that are loud on a request, but not on the retain data, are turned down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from tfrnet.core.cost import Account
from tfrnet.core.guard import judge
from tfrnet.core.guarded_settings import GuardedSettings
from tfrnet.core.outcome import Outcome
from tfrnet.core.search_space import SearchSpace
from tfrnet.core.settings import option
from tfrnet.core.stage import Report
from tfrnet.core.tensors import TensorState
from tfrnet.data.examples import Encoded
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask
from tfrnet.unlearner import Proposal, Unlearner


@dataclass(frozen=True)
class HushConfig(GuardedSettings):
    """Settings of Hush."""

    about: ClassVar[str] = "channels that are loud on the request alone are turned down"
    has_mask: ClassVar[bool] = True

    channels: int = option(16, "channels that a request turns down", 1)
    strength: float = option(0.5, "share taken off such a channel", 0, 1)
    retain_examples: int = option(8, "retain examples that loudness is compared with", 1)
    dormant_threshold: float = option(
        0.1, "a channel is dormant if its mask is at or below this", 0, 1
    )


class Hush(Unlearner[TensorState]):
    """Does not train: a state is one number per channel, which scales the channel's output."""

    method = "hush"
    label = "Hush"
    config_class = HushConfig
    search_space = SearchSpace({"channels": (4, 16, 64), "strength": (0.25, 0.5, 1.0)})
    config: HushConfig
    effect: ChannelMask

    def __init__(self, model: Any, tokenizer: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(model, tokenizer, *arguments, **options)
        # Last, so that an error above leaves the model as it was.
        self.effect = self.attach(model, self.config)
        self.state = TensorState({"mask": self.effect.values})

    @classmethod
    def attach(cls, model: Any, config: Any, seed: int = 0) -> ChannelMask:
        """Put a mask of ones on a model."""
        return ChannelMask(model, find_channels(model))

    @classmethod
    def read_state(cls, tensors: Mapping[str, torch.Tensor]) -> TensorState:
        """Return the state with the given tensors."""
        return TensorState(tensors)

    def _propose(
        self, name: str, forget: list[Encoded], say: Report, account: Account
    ) -> Proposal[TensorState]:
        guard_before = self._guard_before(say, account)
        forget_before = self._mean_loss(forget)
        say("listening to the channels")
        loudest = self._loudest(forget)
        mask = self.state.tensors()["mask"].clone()
        mask[loudest[: self.config.channels]] *= 1 - self.config.strength
        self.effect.set(mask)
        verdict = judge(
            guard_before, self._timed_guard_loss(say, account), self.config, self._drift_ceiling
        )
        outcome = Outcome(
            id=name,
            outcome="accepted" if verdict.accepted else "rejected",
            reason=verdict.reason,
            forget_loss_before=forget_before,
            forget_loss_after=self._mean_loss(forget),
            guard_loss_before=guard_before.mean,
            guard_loss_after=verdict.after,
            guard_groups=verdict.group_losses(guard_before),
            top_channels=tuple(loudest[:128].tolist()),
        )
        state = TensorState({"mask": mask}) if verdict.accepted else self.state
        return Proposal(state, outcome)

    def _loudest(self, forget: list[Encoded]) -> torch.Tensor:
        """Return all channels, those first that the request makes louder than retain data do."""
        kept = self._loudness(self._retain_sample(self.config.retain_examples))
        return (self._loudness(forget) - kept).argsort(descending=True)

    def _loudness(self, examples: Sequence[Encoded]) -> torch.Tensor:
        """Return the mean size of every channel's output, over its projection's mean. [channels]"""
        heard = {place.name: torch.zeros(place.width) for place in self.effect.index}
        hooks = [
            self.model.get_submodule(name).register_forward_hook(_adding_to(total))
            for name, total in heard.items()
        ]
        try:
            for example in examples:  # one by one, so that no padding is heard
                self._losses([example])
        finally:
            for hook in hooks:
                hook.remove()
        sizes = [total / total.mean().clamp(min=1e-12) for total in heard.values()]
        return torch.cat(sizes).to(self.effect.home)


def _adding_to(total: torch.Tensor) -> Callable[..., None]:
    def add(module: object, inputs: object, output: torch.Tensor) -> None:
        total.add_(output.abs().flatten(0, -2).mean(0).float().cpu())

    return add


METHOD = Hush
