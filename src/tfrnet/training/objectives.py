"""The objectives of the gradient baselines, as pure functions of logits and hidden states.

Shapes: T answer tokens of B sequences, concatenated, V words, D hidden units. All of it runs in
float32 or wider. The losses of tokens and sequences are in `tfrnet.models.forward`.

Averages differ between methods and are part of their definition: over all tokens of the batch
(token mean), within each sequence and then over sequences (mean of means), or summed within each
sequence.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import logsigmoid

from tfrnet.models.forward import at_least_float32


def gradient_ascent(losses: torch.Tensor) -> torch.Tensor:
    """GA: minus the token mean. It has no lower bound."""
    return -losses.mean()


def npo(sums: torch.Tensor, reference_sums: torch.Tensor, beta: float) -> torch.Tensor:
    """NPO: -(2/beta) log sigmoid(beta (l - l_ref)), with l the summed loss of a sequence."""
    return (-2 / beta * logsigmoid(beta * (sums - reference_sums))).mean()


def simnpo(means: torch.Tensor, beta: float, gamma: float = 0.0) -> torch.Tensor:
    """SimNPO as released: -(2/beta) log sigmoid(beta (m - gamma)), m the mean loss of a sequence.

    The paper writes the margin outside beta; the two agree at 0, which every published run uses.
    """
    return (-2 / beta * logsigmoid(beta * (means - gamma))).mean()


def divergences(logits: torch.Tensor, teacher_log_probs: torch.Tensor) -> torch.Tensor:
    """ASU: KL(teacher || student) over the vocabulary, of every answer token. [T]."""
    log_p = torch.log_softmax(at_least_float32(logits), -1)
    teacher = teacher_log_probs.to(log_p)
    return (teacher.exp() * (teacher - log_p)).sum(-1)


def to_control(hidden: torch.Tensor, control: torch.Tensor) -> torch.Tensor:
    """RMU's forget loss: mean squared distance of hidden states from one vector. [T, D], [D]."""
    return nn.functional.mse_loss(
        at_least_float32(hidden), at_least_float32(control).expand_as(hidden)
    )


def to_frozen(hidden: torch.Tensor, frozen: torch.Tensor) -> torch.Tensor:
    """RMU's retain loss: mean squared distance from the frozen model's hidden states."""
    return nn.functional.mse_loss(at_least_float32(hidden), at_least_float32(frozen))


def control_direction(size: int, seed: int) -> torch.Tensor:
    """RMU's direction: uniform in [0, 1) per unit, scaled to length 1."""
    values = torch.rand(size, generator=torch.Generator().manual_seed(seed))
    direction: torch.Tensor = values / values.norm()
    return direction
