"""Rescale: undo a mask without knowing it, from the norms of the weights' rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from tfrnet.evaluation.attacking.attack import Attack
from tfrnet.evaluation.attacking.subject import Attacked, Subject
from tfrnet.evaluation.attacking.weights import output_rows, replaced
from tfrnet.masking.channels import ChannelIndex
from tfrnet.masking.mask import dormant

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def rescale(subject: Subject) -> Iterator[Attacked]:
    """Scale every output row to its module's median norm, which partly undoes a soft mask."""
    model, mask = subject.model, subject.mask
    with subject.untouched(), rescaled(model, mask.index):
        control = subject.accuracy(subject.hidden)
    hardened = harden(mask.values, subject.options.dormant_threshold)
    for variant, values in (("soft", mask.values), ("hardened", hardened)):
        with mask.holding(values), subject.unlearned(), rescaled(model, mask.index):
            attacked = subject.accuracy(subject.hidden)
        yield subject.row("rescale", variant, attacked, control)


@contextmanager
def rescaled(model: PreTrainedModel, index: ChannelIndex) -> Iterator[None]:
    """Scale every output row of a folded model to its module's median norm within a `with` block.

    This is how an attacker could undo an unknown mask: rows of one module have similar norms, so a
    short one was probably scaled down. Zero rows stay zero and are left out of the median.
    """
    tensors = {}
    for projection in index:
        module = model.get_submodule(projection.name)
        factors = _to_median_norm(output_rows(module, module.get_parameter("weight").detach()))
        for part, parameter in module.named_parameters(recurse=False):
            rows = output_rows(module, parameter.detach())
            scaled = rows * (factors if rows.dim() == 1 else factors.unsqueeze(1))
            name = f"{projection.name}.{part}"
            tensors[name] = output_rows(module, scaled.to(parameter.dtype)).contiguous()
    with replaced(model, tensors):
        yield


def harden(values: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return the mask with its dormant channels at 0, so that rescaling cannot restore them."""
    return values.masked_fill(dormant(values, threshold), 0.0)


def _to_median_norm(rows: torch.Tensor) -> torch.Tensor:
    """Return the factor of each row. Shape [out], at least float32."""
    wide = rows.to(torch.promote_types(rows.dtype, torch.float32))
    norms = wide.norm(dim=1)
    alive = norms > 0
    if not bool(alive.any()):
        return torch.ones_like(norms)
    return torch.where(alive, norms[alive].quantile(0.5) / norms, 1.0)


ATTACK = Attack("rescale", rescale, needs_mask=True, rank=2)
