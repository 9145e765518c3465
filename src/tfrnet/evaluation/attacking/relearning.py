"""Relearning: how fast a model learns forgotten items again from a few examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import nn

from tfrnet.core.errors import InputError
from tfrnet.data.examples import Encoded
from tfrnet.evaluation.attacking.weights import replaced
from tfrnet.models.forward import answer_losses, collate, input_device
from tfrnet.models.layers import is_projection
from tfrnet.models.lora import LoraOptions, put_lora_on, take_lora_off

if TYPE_CHECKING:
    from transformers import PreTrainedModel

T = TypeVar("T")


@dataclass(frozen=True)
class RelearnOptions:
    """How to train: LoRA on the target modules, or all weights with `full`.

    The default `learning_rate` is 1e-4 for LoRA and 1e-5 for all weights. `steps` are those after
    which to measure. If a model lacks the target modules, PEFT's defaults for its architecture are
    trained, or every projection if PEFT has none.
    """

    rank: int = 8
    alpha: int = 16
    learning_rate: float | None = None
    batch_size: int = 8
    steps: tuple[int, ...] = (0, 5, 10, 20, 40, 80)
    seed: int = 0
    full: bool = False
    target_modules: tuple[str, ...] = ("q_proj", "v_proj")

    def __post_init__(self) -> None:
        if not self.steps or self.steps[0] < 0 or list(self.steps) != sorted(set(self.steps)):
            raise InputError(f"steps must be ascending and not negative, not {list(self.steps)}")
        if self.batch_size < 1:
            raise InputError(f"batch_size must be at least 1, not {self.batch_size}")

    @property
    def rate(self) -> float:
        """The learning rate that is used."""
        if self.learning_rate is not None:
            return self.learning_rate
        return 1e-5 if self.full else 1e-4


def relearn(
    model: PreTrainedModel,
    examples: Sequence[Encoded],
    options: RelearnOptions,
    measure: Callable[[], T],
) -> list[tuple[int, T]]:
    """Train on the answers of the examples and return `measure`'s results after the listed steps.

    The model is in eval mode throughout, so dropout does not make runs differ, and is restored
    exactly at the end. It must not have a live mask: fold it in first.
    """
    if not examples:
        raise InputError("relearning needs at least one example")
    trained = _all_weights(model) if options.full else _adapter(model, options)
    batches = _shuffled(len(examples), options)
    curve: list[tuple[int, T]] = []
    done = 0
    with _kept(model), trained as parameters:
        model.eval()
        optimizer = torch.optim.AdamW(parameters, lr=options.rate, weight_decay=0.0)
        for step in options.steps:
            for _ in range(step - done):
                _train(model, [examples[i] for i in next(batches)], optimizer)
            done = step
            curve.append((step, measure()))
    return curve


@torch.enable_grad()
def _train(
    model: PreTrainedModel, examples: Sequence[Encoded], optimizer: torch.optim.Optimizer
) -> None:
    optimizer.zero_grad()
    loss = answer_losses(model, collate(examples, input_device(model))).mean()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def _shuffled(count: int, options: RelearnOptions) -> Iterator[list[int]]:
    """Yield batches of example numbers, one shuffle after another; a batch may span two."""
    generator = torch.Generator().manual_seed(options.seed)
    size = min(options.batch_size, count)
    waiting: list[int] = []
    while True:
        while len(waiting) < size:
            waiting += torch.randperm(count, generator=generator).tolist()
        yield waiting[:size]
        waiting = waiting[size:]


@contextmanager
def _kept(model: nn.Module) -> Iterator[None]:
    """Restore training modes, gradients and `requires_grad` at the end."""
    modes = [(module, module.training) for module in model.modules()]
    state = [
        (parameter, parameter.requires_grad, parameter.grad) for parameter in model.parameters()
    ]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for parameter, wanted, gradient in state:
            parameter.requires_grad_(wanted)
            parameter.grad = gradient


@contextmanager
def _all_weights(model: nn.Module) -> Iterator[list[nn.Parameter]]:
    """Replace the weights by copies and yield these for training.

    The copies are float32 or wider: steps this small would be lost in bfloat16, and a model that
    does not train would look like one that does not relearn.
    """
    copies = {
        name: parameter.detach().to(torch.promote_types(parameter.dtype, torch.float32), copy=True)
        for name, parameter in model.named_parameters()
    }
    with replaced(model, copies):
        model.requires_grad_()
        yield list(model.parameters())


@contextmanager
def _adapter(model: PreTrainedModel, options: RelearnOptions) -> Iterator[list[nn.Parameter]]:
    """Add LoRA to the model and yield its weights for training; remove it at the end."""
    from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as USUAL

    projections = [name for name, module in model.named_modules() if is_projection(module)]
    targets: str | tuple[str, ...] = options.target_modules
    if not any(name.rpartition(".")[2] in targets for name in projections):
        usual = USUAL.get(model.config.model_type, "all-linear")
        targets = usual if isinstance(usual, str) else tuple(usual)
    put_lora_on(model, LoraOptions(options.rank, options.alpha, targets, options.seed))
    try:
        yield [parameter for parameter in model.parameters() if parameter.requires_grad]
    finally:
        take_lora_off(model)
