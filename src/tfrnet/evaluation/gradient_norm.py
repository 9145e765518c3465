"""The scores of the gradient-norm attack: how large the gradient of each answer's loss is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch.nn import Parameter
from torch.nn.functional import cross_entropy

from tfrnet.data.examples import Encoded
from tfrnet.evaluation.metrics.membership import gradient_norm_score
from tfrnet.models.forward import answer_logits, collate, input_device

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def gradient_norms(
    model: PreTrainedModel,
    answers: Sequence[Encoded],
    advance: Callable[[int], None] | None = None,
) -> list[float]:
    """Return each answer's score, one answer at a time: gradients of a batch would be added up."""
    scores = []
    with _all_trainable(model) as parameters, torch.enable_grad():
        for answer in answers:
            batch = collate([answer], input_device(model))
            loss = cross_entropy(answer_logits(model, batch), batch.targets)
            found = torch.autograd.grad(loss, parameters, allow_unused=True)
            scores.append(gradient_norm_score([float(g.norm()) for g in found if g is not None]))
            if advance:
                advance(1)
    return scores


@contextmanager
def _all_trainable(model: PreTrainedModel) -> Iterator[list[Parameter]]:
    """Let all weights have gradients within a `with` block."""
    parameters = [p for p in model.parameters() if p.is_floating_point()]
    frozen = [parameter for parameter in parameters if not parameter.requires_grad]
    for parameter in frozen:
        parameter.requires_grad_(True)
    try:
        yield parameters
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)
