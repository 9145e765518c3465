"""Scores of the tokens of an answer, from which all likelihood metrics are computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch

# The most positions whose distribution over the vocabulary is in memory as float32 at a time.
_SLICE = 256


@dataclass(frozen=True)
class TokenScores:
    """Per answer token: its log-probability, whether it is the most likely one, and the moments.

    `mean` and `variance` are those of the log-probability of a token drawn from the model; they
    are empty if they were not requested.
    """

    log_probs: tuple[float, ...]
    is_argmax: tuple[bool, ...]
    mean: tuple[float, ...] = ()
    variance: tuple[float, ...] = ()

    @property
    def total(self) -> float:
        """The answer's log-likelihood."""
        return sum(self.log_probs)

    @property
    def average_loss(self) -> float:
        """The mean negative log-likelihood per token."""
        return -self.total / len(self.log_probs)

    def without_last(self) -> TokenScores:
        """Return the scores without the last token, for metrics that leave EOS out."""
        return TokenScores(
            self.log_probs[:-1], self.is_argmax[:-1], self.mean[:-1], self.variance[:-1]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {name: list(values) for name, values in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, list[Any]]) -> TokenScores:
        """Rebuild the scores from the result of `to_dict`."""
        return cls(**{name: tuple(value) for name, value in values.items()})


def token_statistics(
    logits: torch.Tensor, targets: torch.Tensor, moments: bool, rows: torch.Tensor | None = None
) -> Iterator[tuple[float, bool, float, float]]:
    """Yield log-probability, argmax, mean and variance of each target. [R, V] and [T].

    `rows` are the rows of logits that targets are read from [T]; without it, each has its own.
    Softmax is computed in float32 or wider: with half-precision logits two answers can tie exactly.
    """
    for start in range(0, len(targets), _SLICE):
        here = slice(start, start + _SLICE)
        part = logits[here if rows is None else rows[here].to(logits.device)]
        wide = part if part.dtype == torch.float64 else part.float()
        wanted = targets[here].to(wide.device)
        log_p = torch.log_softmax(wide, -1)
        chosen = log_p.gather(1, wanted.unsqueeze(1)).squeeze(1)
        hits = wide.argmax(-1) == wanted
        mean = variance = torch.zeros_like(chosen)
        if moments:
            p = log_p.exp()
            # A token that cannot occur has log-probability -inf and adds nothing: 0 log 0 = 0.
            safe = log_p.clamp(min=torch.finfo(log_p.dtype).min / 4).masked_fill(p == 0, 0)
            mean = (p * safe).sum(-1)
            variance = (p * (safe - mean.unsqueeze(1)) ** 2).sum(-1)
        yield from zip(
            chosen.tolist(), hits.tolist(), mean.tolist(), variance.tolist(), strict=True
        )
