"""Quantisation as an attack: what stays forgotten after a model's weights are rounded.

A mask scales whole output rows. If every group of weights that shares a scale lies within one row,
the mask's factor only changes the scale, and the rounded integers stay the same, except for the few
that folding moves across a rounding boundary: hardly any in float32, more in bfloat16.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from tfrnet.core.errors import TfrnetWarning
from tfrnet.evaluation.attacking.attack import Attack
from tfrnet.evaluation.attacking.subject import Attacked, Subject
from tfrnet.evaluation.attacking.weights import output_rows, replaced
from tfrnet.masking.channels import find_channels

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Grid = Literal["int8", "int4", "int3", "nf4", "fp4"]
Scaling = Literal["row", "block", "tensor", "flat"]

BLOCK = 64

# The levels of bitsandbytes, ascending. Its FP4 has two codes for zero, so 15 levels.
LEVELS: dict[str, tuple[float, ...]] = {
    "nf4": (
        -1.0,
        -0.6961928009986877,
        -0.5250730514526367,
        -0.39491748809814453,
        -0.28444138169288635,
        -0.18477343022823334,
        -0.09105003625154495,
        0.0,
        0.07958029955625534,
        0.16093020141124725,
        0.24611230194568634,
        0.33791524171829224,
        0.44070982933044434,
        0.5626170039176941,
        0.7229568362236023,
        1.0,
    ),
    "fp4": tuple(
        level / 12 for level in (-12, -8, -6, -4, -3, -2, -1 / 16, 0, 1 / 16, 2, 3, 4, 6, 8, 12)
    ),
}


@dataclass(frozen=True)
class Scheme:
    """What weights are rounded to, and which weights share a scale.

    `row`: an output row; `block`: 64 values of a row, or the fewer left at its end; `tensor`: all;
    `flat`: 64 values of the weight row after row, as bitsandbytes does, so a block may span rows.
    """

    grid: Grid
    scaling: Scaling = "flat"

    @property
    def name(self) -> str:
        """For tables: int4-row, int8-tensor, nf4."""
        is_usual = self.grid in LEVELS and self.scaling == "flat"
        return self.grid if is_usual else f"{self.grid}-{self.scaling}"


_INTEGERS: tuple[Grid, ...] = ("int8", "int4", "int3")
_SCALINGS: tuple[Scaling, ...] = ("row", "block", "tensor")
SCHEMES = (
    *(Scheme(grid, scaling) for grid in _INTEGERS for scaling in _SCALINGS),
    Scheme("nf4"),
    Scheme("fp4"),
)


def to_integers(groups: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Round each row of `groups` to N-bit integers; return each row's step, and the integers.

    The step is max|w| / 2^(N-1), so a positive maximum is clipped to the last integer below it.
    """
    half = 2 ** (bits - 1)
    steps = groups.abs().amax(1, keepdim=True) / half
    return steps, (groups / _divisor(steps)).round().clamp(-half, half - 1)


def to_levels(groups: torch.Tensor, levels: tuple[float, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Find the level nearest to each value over its row's max|w|; return the maxima and indices."""
    maxima = groups.abs().amax(1, keepdim=True)
    grid = torch.tensor(levels, dtype=groups.dtype, device=groups.device)
    return maxima, torch.bucketize(groups / _divisor(maxima), (grid[1:] + grid[:-1]) / 2)


def _divisor(scales: torch.Tensor) -> torch.Tensor:
    """Avoid a division by 0, so that a group of zeros stays zero."""
    return scales.where(scales > 0, 1.0)


def round_trip(weight: torch.Tensor, scheme: Scheme) -> torch.Tensor:
    """Quantise and dequantise a weight of shape [out, in]."""
    wide = weight.to(torch.promote_types(weight.dtype, torch.float32))
    rows = wide if scheme.scaling in ("row", "block") else wide.reshape(1, -1)
    width = rows.shape[1]
    size = BLOCK if scheme.scaling in ("block", "flat") else width
    # The last block is padded with zeros, which do not change its largest value.
    groups = torch.nn.functional.pad(rows, (0, -width % size)).reshape(-1, size)
    if scheme.grid in LEVELS:
        levels = LEVELS[scheme.grid]
        scales, indices = to_levels(groups, levels)
        rounded = scales * torch.tensor(levels, dtype=wide.dtype, device=wide.device)[indices]
    else:
        scales, integers = to_integers(groups, int(scheme.grid.removeprefix("int")))
        rounded = scales * integers
    kept = rounded.reshape(len(rows), -1)[:, :width]
    return kept.reshape(weight.shape).to(weight.dtype)


@contextmanager
def quantised(model: PreTrainedModel, scheme: Scheme) -> Iterator[None]:
    """Round the weights of all projections except the LM head within a `with` block; not biases."""
    with warnings.catch_warnings():
        # Experts stored as one tensor are not projections; masking a model warns about them.
        warnings.simplefilter("ignore", TfrnetWarning)
        index = find_channels(model, target_modules="all-linear")
    tensors = {}
    for projection in index:
        module = model.get_submodule(projection.name)
        rows = output_rows(module, module.get_parameter("weight").detach())
        rounded = output_rows(module, round_trip(rows, scheme))
        tensors[f"{projection.name}.weight"] = rounded.contiguous()
    with replaced(model, tensors):
        yield


def quantise(subject: Subject) -> Iterator[Attacked]:
    """Round the weights to 8, 4 and 3 bits."""
    for scheme in SCHEMES:
        with subject.unlearned(), quantised(subject.model, scheme):
            attacked = subject.accuracy(subject.hidden)
        with subject.untouched(), quantised(subject.model, scheme):
            control = subject.accuracy(subject.hidden)
        yield subject.row("quantise", scheme.name, attacked, control)


ATTACK = Attack("quantise", quantise, rank=3)
