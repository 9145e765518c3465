"""The training loop of the gradient methods: a few steps per request."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch

from tfrnet.core.cost import Account
from tfrnet.core.errors import OVERFLOW_HINT, InputError
from tfrnet.core.guard import judge
from tfrnet.core.outcome import Outcome
from tfrnet.core.stage import Report, Stage
from tfrnet.core.tensors import TensorState
from tfrnet.data.examples import Encoded, Example, with_eos
from tfrnet.models.checkpointing import checkpointed
from tfrnet.models.forward import Batch, answer_logits, collate, input_device, token_losses
from tfrnet.training.lora_effect import LoraEffect
from tfrnet.training.optimiser import MasterAdamW
from tfrnet.training.training_settings import TrainingSettings
from tfrnet.training.weights_effect import WeightsEffect
from tfrnet.unlearner import Proposal, Unlearner

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Part:
    """Some of a request's sequences that share a forward pass."""

    numbers: list[int]
    batch: Batch


@dataclass(frozen=True)
class Trained:
    """The trained values, or why there are none."""

    values: dict[str, torch.Tensor]
    steps: int
    problem: str = ""


# What can be trained: the weights themselves, or an adapter.
Trainable = WeightsEffect | LoraEffect


class DivergedError(ArithmeticError):
    """A loss that is not finite."""


class GradientUnlearner(Unlearner[TensorState]):
    """A method that trains. Subclasses define the loss; everything else is here.

    The state is the trained values; it is empty before the first request.
    """

    adam_eps: ClassVar[float] = 1e-8
    # What `_reference` does, for the progress display.
    reference_stage: ClassVar[str] = "keeping what the model says now"
    effect: Trainable
    config: TrainingSettings

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        retain: Sequence[Example],
        config: Any,
        **options: Any,
    ) -> None:
        super().__init__(model, tokenizer, retain, config, **options)
        # Last, so that an error above leaves the model as it was.
        self.effect = self._attach()
        self.state = TensorState()

    # For subclasses to define

    @abstractmethod
    def _backward(self, forget: list[Encoded], reference: Any, step: int) -> float:
        """Add the gradients of a step's loss; return the forget loss that a ceiling is for.

        Raise `DivergedError` if a loss is not finite.
        """

    def _reference(self, forget: list[Encoded]) -> Any:
        """Return what the loss needs from the model before training; by default nothing."""

    def _carried(self, reference: Any) -> dict[str, torch.Tensor]:
        """Return tensors that the state holds besides the trained values; by default none."""
        return {}

    def _details(self, reference: Any) -> dict[str, Any]:
        """Return the method's own fields of the outcome; by default none."""
        return {}

    @classmethod
    def attach(cls, model: PreTrainedModel, config: Any, seed: int = 0) -> Trainable:
        """Attach to all weights of a model, or put an adapter on it.

        The seed is for an adapter's initial values, which matter only to training.
        """
        if config.trained == "lora":
            return LoraEffect(model, config.lora(seed))
        return WeightsEffect(model)

    @classmethod
    def read_state(cls, tensors: Mapping[str, torch.Tensor]) -> TensorState:
        """Return the state with the given tensors."""
        return TensorState(tensors)

    def _needed(self) -> Set[str]:
        return self.effect.parameters.keys()

    def _attach(self) -> Trainable:
        return self.attach(self.model, self.config, self.seed)

    # The request

    def _propose(
        self, name: str, forget: list[Encoded], say: Report, account: Account
    ) -> Proposal[TensorState]:
        guard_before = self._guard_before(say, account)
        with account.time("forget_loss"):
            say("measuring the forget loss")
            forget_before = self._mean_loss(forget)
        if not math.isfinite(forget_before):
            raise InputError(
                f"the loss on request {name!r} is {forget_before} before any step, so nothing was "
                f"changed; {OVERFLOW_HINT}"
            )
        targets = self._targets(forget)
        with account.time("reference"):
            say(self.reference_stage)
            reference = self._reference(targets)
        with account.time("train"):
            trained = self._train(targets, reference, say)
        state = TensorState(trained.values | self._carried(reference))
        self.effect.show(state)
        with account.time("forget_loss"):
            say("measuring the forget loss")
            forget_after = self._mean_loss(forget)
        guard_after = self._timed_guard_loss(say, account)
        verdict = judge(guard_before, guard_after, self.config, self._drift_ceiling)
        problem = trained.problem or _not_finite(state, forget_after, verdict.after)
        accepted = not problem and verdict.accepted
        outcome = Outcome(
            id=name,
            outcome="accepted" if accepted else "rejected",
            reason=f"{problem}; the last state was restored" if problem else verdict.reason,
            forget_loss_before=forget_before,
            forget_loss_after=forget_after,
            guard_loss_before=guard_before.mean,
            guard_loss_after=verdict.after,
            guard_groups=verdict.group_losses(guard_before),
            details={"steps": trained.steps} | self._details(reference),
        )
        return Proposal(state if accepted else self.state, outcome)

    def _train(self, forget: list[Encoded], reference: Any, say: Report) -> Trained:
        config = self.config
        optimiser = MasterAdamW(
            self.effect.parameters,
            self.state.tensors(),
            config.learning_rate * (config.lora_factor if config.trained == "lora" else 1.0),
            config.weight_decay,
            self.adam_eps,
        )
        done = 0
        problem = ""
        try:
            with checkpointed(self.model, self.gradient_checkpointing):
                for step in range(config.steps):
                    say(Stage("training", step + 1, config.steps))
                    if self._backward(forget, reference, step) > self._ceiling():
                        break
                    optimiser.step()
                    done += 1
        except DivergedError as error:
            problem = f"training diverged: {error} at step {done + 1}"
        finally:
            optimiser.release()
        in_place = isinstance(self.effect, WeightsEffect) and self.effect.stays_on_gpu
        return Trained(optimiser.values(in_place), done, problem)

    def _ceiling(self) -> float:
        """Return the forget loss at which training stops early."""
        return math.inf

    # For methods

    @contextmanager
    def _acting_as(self, reference: Literal["previous", "start"]) -> Iterator[None]:
        """Use the model as it was before this request, or before the first, without gradients."""
        if reference == "start":
            self.effect.show(TensorState())
        try:
            with torch.no_grad():
                yield
        finally:
            self.effect.show(self.state)

    def _targets(self, forget: list[Encoded]) -> list[Encoded]:
        """Return the training targets for the request's examples."""
        return [self._target(example) for example in forget]

    def _target(self, example: Encoded) -> Encoded:
        """Return an example with the loss on the tokens chosen by the settings."""
        if self.config.loss_tokens == "all":
            example = replace(example, answer_start=1)
        return self._ended(example)

    def _ended(self, example: Encoded) -> Encoded:
        has_end = self.config.end_token and self.tokenizer.eos_token_id is not None
        return with_eos(example, self.tokenizer) if has_end else example

    def _parts(self, examples: Sequence[Encoded]) -> Iterator[Part]:
        """Yield examples in order, as many at a time as fit in a forward pass."""
        device = input_device(self.model)
        for start in range(0, len(examples), self.batch_size):
            numbers = list(range(start, min(start + self.batch_size, len(examples))))
            yield Part(numbers, collate([examples[i] for i in numbers], device))

    def _retain_backward(self, weight: float, step: int) -> None:
        """Add the gradients of the token mean of a retain batch's loss."""
        if not weight:
            return
        sample = self._retain_sample(self.config.retain_batch, "step", step)
        self._mean_backward([self._ended(e) for e in sample], weight, "the retain loss")

    def _mean_backward(self, examples: list[Encoded], weight: float, what: str) -> None:
        """Add the gradients of the token mean of examples' losses, times a weight."""
        tokens = sum(example.answer_length for example in examples)
        for part in self._parts(examples):
            losses = token_losses(answer_logits(self.model, part.batch), part.batch.targets)
            backward(weight * losses.sum() / tokens, what)


def backward(loss: torch.Tensor, what: str) -> None:
    """Add the gradients of a loss, which must be finite."""
    if not math.isfinite(float(loss.detach())):
        raise DivergedError(f"{what} is {float(loss.detach())}")
    if loss.requires_grad:
        loss.backward()  # type: ignore[no-untyped-call]


def _not_finite(state: TensorState, forget_loss: float, guard_loss: float) -> str:
    for name, value in state.values.items():
        if not bool(torch.isfinite(value).all()):
            return f"training diverged: {name} is not finite"
    for what, loss in (("forget", forget_loss), ("guard", guard_loss)):
        if not math.isfinite(loss):
            return f"training diverged: the {what} loss is {loss}"
    return ""
