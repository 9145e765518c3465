"""Whether what was exported computes what the live model does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from tfrnet.core.errors import CheckFailedError
from tfrnet.models.forward import input_device

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Largest ||difference|| / ||logits||; the fold rounds each weight once, the mask each activation.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}
_PROBES = (
    "The capital of France is",
    "Question: What is 12 plus 30?\nAnswer:",
    "Once upon a time there was a small village by the sea, and in it lived",
)


@torch.no_grad()
def probe_logits(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[torch.Tensor]:
    """Return what a model answers to a few fixed texts, in float64."""
    device = input_device(model)
    return [
        model(torch.tensor([tokenizer(probe)["input_ids"]], device=device)).logits.double().cpu()
        for probe in _PROBES
    ]


def checked_difference(
    wanted: Sequence[torch.Tensor],
    found: Sequence[torch.Tensor],
    untouched: Sequence[torch.Tensor],
    dtype: torch.dtype,
) -> float:
    """Return the largest relative difference, or raise if it is over the type's tolerance.

    Coarse numbers need a wide tolerance, in which a change of a few percent has room too. So
    what was found may not be nearer to the untouched model than to what is wanted, either.
    """
    difference = _distance(found, wanted)
    tolerance = TOLERANCE.get(dtype, 1e-4)
    if not difference <= tolerance:
        raise CheckFailedError(
            f"the exported logits differ from the live model's by {difference:.2g} "
            f"(relative), over the tolerance {tolerance:.0e}; nothing was exported"
        )
    if _distance(found, untouched) < difference / 2:
        raise CheckFailedError(
            "the exported logits are those of the untouched model, as if nothing had been "
            "forgotten; nothing was exported"
        )
    return difference


def _distance(found: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> float:
    """Return the largest relative difference over the probes."""
    return float(
        torch.stack([(f - o).norm() / o.norm() for f, o in zip(found, others, strict=True)]).max()
    )
