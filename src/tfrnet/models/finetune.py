"""Supervised fine-tuning with LoRA, on the answers' tokens only; the base weights are frozen."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from tfrnet.core.errors import InputError
from tfrnet.data.examples import Encoded
from tfrnet.models.forward import answer_losses, collate, input_device
from tfrnet.models.lora import LoraOptions, lora_config

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class FinetuneOptions:
    """How to train. A batch holds at most `batch_size` examples and `batch_tokens` tokens.

    The learning rate rises over the first `warmup` share of all steps, then falls linearly to 0.
    """

    rank: int = 16
    alpha: int = 32
    learning_rate: float = 5e-4
    epochs: int = 10
    batch_size: int = 64
    batch_tokens: int = 16384
    warmup: float = 0.03
    clip: float = 1.0
    seed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class EpochRecord:
    """One line of the training log."""

    epoch: int
    loss: float
    seconds: float


def finetune(
    model: PreTrainedModel,
    examples: Sequence[Encoded],
    options: FinetuneOptions,
    report: Callable[[EpochRecord], None] | None = None,
) -> tuple[PeftModel, list[EpochRecord]]:
    """Train a LoRA adapter on all projections; return the model with it, and the log."""
    from peft import get_peft_model

    if not examples:
        raise InputError("there is nothing to train on")
    torch.manual_seed(options.seed)
    # PEFT's own wrapper, so that the adapter can be saved in PEFT's format.
    adapter = LoraOptions(options.rank, options.alpha)
    peft_model = get_peft_model(model, lora_config(model, adapter))
    trained = [p for p in peft_model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=options.learning_rate, weight_decay=0.0)
    plans = [list(_batches(examples, options, epoch)) for epoch in range(options.epochs)]
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, _rise_and_fall(sum(map(len, plans)), options.warmup)
    )
    log = []
    model.train()
    start = time.perf_counter()
    for epoch, plan in enumerate(plans, start=1):
        total = torch.zeros(())
        with _fast_products():
            for numbers in plan:
                chosen = [examples[i] for i in numbers]
                loss = _step(model, chosen, optimizer, trained, options.clip)
                schedule.step()
                # Summed on the device: reading every loss would force a synchronisation.
                total = total.to(loss.device) + loss * len(numbers)
        record = EpochRecord(epoch, float(total) / len(examples), time.perf_counter() - start)
        if not math.isfinite(record.loss):
            raise InputError(f"training diverged in epoch {epoch}; use a lower learning rate")
        log.append(record)
        if report:
            report(record)
    model.eval()
    return peft_model, log


@contextmanager
def _fast_products() -> Iterator[None]:
    """On a GPU, TF32 is accurate enough for training; what is measured later is not to have it."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _step(
    model: PreTrainedModel,
    examples: Sequence[Encoded],
    optimizer: torch.optim.Optimizer,
    trained: Sequence[torch.nn.Parameter],
    clip: float,
) -> torch.Tensor:
    loss = answer_losses(model, collate(examples, input_device(model))).mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(trained, clip)
    optimizer.step()
    return loss.detach()


def _batches(
    examples: Sequence[Encoded], options: FinetuneOptions, epoch: int
) -> Iterator[list[int]]:
    """Yield every example once, in batches of similar length, the batches in random order."""
    generator = random.Random(f"{options.seed} {epoch}")
    order = sorted(
        range(len(examples)), key=lambda i: (len(examples[i].ids) // 8, generator.random())
    )
    kept: list[list[int]] = []
    longest = 0
    for i in order:
        longest = max(longest, len(examples[i].ids))
        full = not kept or len(kept[-1]) == options.batch_size
        if full or longest * (len(kept[-1]) + 1) > options.batch_tokens:
            kept.append([])
            longest = len(examples[i].ids)
        kept[-1].append(i)
    generator.shuffle(kept)
    yield from kept


def _rise_and_fall(steps: int, warmup: float) -> Callable[[int], float]:
    rise = max(1, round(steps * warmup))

    def factor(step: int) -> float:
        return min((step + 1) / rise, max(0.0, (steps - step) / max(1, steps - rise)))

    return factor
