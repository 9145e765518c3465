"""The unlearned model, as an attacker would get it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

from tfrnet.core.effect import Effect
from tfrnet.core.errors import InputError
from tfrnet.data.items import Item
from tfrnet.data.protocol import Split
from tfrnet.data.tasks import find_task
from tfrnet.evaluation.attacking.recovery import recovery_rate
from tfrnet.evaluation.attacking.relearning import RelearnOptions
from tfrnet.evaluation.attacking.weights import folded
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.tasks import TaskResult, evaluate_task

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from tfrnet.masking.mask import ChannelMask

# Prompts that an attack makes longer have room up to the model's context, but at most this.
_LONG = 2048


@dataclass(frozen=True)
class AttackOptions:
    """How many items are measured, and how long relearning trains."""

    limit: int | None = None
    max_length: int = 256
    relearn_steps: tuple[int, ...] = (0, 5, 10, 20, 40, 80)
    relearn_seeds: int = 3
    dormant_threshold: float = 0.1

    def __post_init__(self) -> None:
        # Raises for invalid steps now, long before relearning begins.
        RelearnOptions(steps=self.relearn_steps)


@dataclass(frozen=True)
class Attacked:
    """Accuracy on the forgotten items, in percent, without and with one attack."""

    attack: str
    variant: str
    plain: float
    attacked: float
    untouched: float
    untouched_attacked: float | None

    @property
    def recovery(self) -> float | None:
        """The share of what was forgotten that came back."""
        return recovery_rate(self.plain, self.attacked, self.untouched)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return vars(self) | {"recovery": self.recovery}


def divide(split: Split, limit: int | None) -> tuple[list[Item], list[Item]]:
    """Return the forgotten items that the attacker has, and those that are measured.

    The attacker has two requests, or half of a stream that is shorter than four.
    """
    count = min(2 * split.request_size, len(split.forget) // 2)
    hidden = list(split.forget[count:])
    if limit is not None and limit > len(hidden):
        raise InputError(
            f"--limit {limit} is larger than the {len(hidden)} forgotten items that are left when "
            f"an attacker holds {count}"
        )
    return list(split.forget[:count]), hidden[:limit]


class Subject:
    """A model with a method's effect, the forgotten items, and ways to measure them.

    An effect that cannot be exported is refused with the reason.
    """

    def __init__(
        self, evaluator: Evaluator, effect: Effect, split: Split, options: AttackOptions
    ) -> None:
        self.evaluator, self.effect, self.options = evaluator, effect, options
        self.task = find_task(split.forget_task)
        self.heldout = list(split.heldout[split.forget_task])
        # None for a dataset that is measured alone.
        others = [items for name, items in split.heldout.items() if name != split.forget_task]
        self.other = list(others[0]) if others else []
        self.known, self.hidden = divide(split, options.limit)
        with self.unlearned():
            self.plain = self.accuracy(self.hidden)
        with self.untouched():
            self.original = self.accuracy(self.hidden)

    @property
    def model(self) -> PreTrainedModel:
        """The model under attack."""
        return self.effect.model

    @property
    def mask(self) -> ChannelMask:
        """The effect, for attacks on a mask."""
        assert self.effect.has_mask
        return cast("ChannelMask", self.effect)

    @contextmanager
    def unlearned(self) -> Iterator[None]:
        """Give the model the weights of an export, without the live effect, in a `with` block."""
        with folded(self.effect):
            yield

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Restore the base model in a `with` block."""
        with self.effect.lifted():
            yield

    @property
    def longest(self) -> int:
        """How many tokens a prompt may have that an attack makes longer."""
        return min(getattr(self.model.config, "max_position_embeddings", _LONG), _LONG)

    def answered(self, items: Sequence[Item], max_length: int | None = None) -> TaskResult:
        """Return what the current model answers."""
        length = max_length or self.options.max_length
        return evaluate_task(self.evaluator, self.task, items, "attacked", length)

    def correct(self, items: Sequence[Item], max_length: int | None = None) -> list[bool]:
        """Return which items the current model gets right."""
        return [bool(sample["correct"]) for sample in self.answered(items, max_length).samples]

    def accuracy(self, items: Sequence[Item], max_length: int | None = None) -> float:
        """Return the accuracy of the current model, in percent."""
        return 100 * fmean(self.correct(items, max_length))

    def row(self, attack: str, variant: str, attacked: float, control: float | None) -> Attacked:
        """Return an accuracy under attack together with those without."""
        return Attacked(attack, variant, self.plain, attacked, self.original, control)

    def both(
        self, attack: str, variant: str, items: Sequence[Item], max_length: int | None = None
    ) -> Attacked:
        """Measure the unlearned and the untouched model with other prompts."""
        with self.unlearned():
            attacked = self.accuracy(items, max_length)
        with self.untouched():
            control = self.accuracy(items, max_length)
        return self.row(attack, variant, attacked, control)
