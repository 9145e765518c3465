"""Which token comes next: the likeliest, or one drawn with a seed."""

from __future__ import annotations

from dataclasses import dataclass

import torch

# Below this a temperature takes the likeliest anyway, and dividing by it would overflow.
_LEAST_TEMPERATURE = 1e-4


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen. Temperature 0 takes the likeliest.

    `logprobs` is how many of the likeliest tokens are reported beside the chosen; None, not even
    the chosen one's.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    logprobs: int | None = None


@dataclass(frozen=True)
class Choice:
    """A token, its log-probability and those of the likeliest, where asked for."""

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class Sampler:
    """Chooses the tokens of one answer; the same seed chooses the same."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._generator = torch.Generator()
        if sampling.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(sampling.seed)

    def choose(self, logits: torch.Tensor, likeliest: int) -> Choice:
        """Choose by the logits of one position. [V], float32."""
        sampling = self._sampling
        token = likeliest
        if sampling.temperature > 0:
            token = self._draw(logits.cpu())
        if sampling.logprobs is None:
            return Choice(token)
        logprobs = logits.log_softmax(-1)
        top = logprobs.topk(min(sampling.logprobs, logits.numel()))
        pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        return Choice(token, float(logprobs[token]), tuple(pairs))

    def _draw(self, logits: torch.Tensor) -> int:
        temperature = max(self._sampling.temperature, _LEAST_TEMPERATURE)
        chances = ((logits - logits.max()) / temperature).softmax(-1)
        if self._sampling.top_p < 1:
            # The smallest set of likeliest tokens that holds at least top_p.
            ordered, tokens = chances.sort(descending=True, stable=True)
            beyond = ordered.cumsum(0) - ordered >= self._sampling.top_p
            beyond[0] = False  # also where top_p is nothing in float32
            ordered[beyond] = 0
            chances = torch.zeros_like(chances).scatter(0, tokens, ordered)
        return int(torch.multinomial(chances, 1, generator=self._generator))
