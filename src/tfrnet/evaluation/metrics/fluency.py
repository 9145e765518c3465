"""Whether a model's continuations of forgotten prompts are still fluent."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from tfrnet.core.errors import InputError
from tfrnet.evaluation.metrics.tofu_scores import Numbers, as_numbers

# A word of letters, with punctuation inside or around it, or a number.
_WORD = re.compile(
    r"""["'(\[]*([^\W\d_]+(['\u2019-][^\W\d_]+)*|[-+]?\d[\d.,:]*%?)["'.,;:!?)\]\u2026]*"""
)
_RUN = 3


@dataclass(frozen=True)
class Fluency:
    """`perplexity_ratio` is 1 for the untouched model; the other two are shares in percent.

    There is no ratio where no prompt was continued by both models.
    """

    perplexity_ratio: float | None
    repeated: float
    not_language: float


def fluency(texts: Sequence[str], losses: Numbers, own_losses: Numbers) -> Fluency:
    """Return the fluency of continuations.

    `losses` are their losses under the untouched model, in mean nats per token; `own_losses` those
    of the untouched model's own continuations of the same prompts. An empty text has no loss: it is
    left out of both lists, which may then be empty, and counts as not language.
    """
    if not texts:
        raise InputError("fluency needs at least one text")
    return Fluency(
        perplexity_ratio(losses, own_losses) if len(losses) else None,
        100 * fmean(map(repetition, texts)),
        100 * fmean(not is_language(text) for text in texts),
    )


def perplexity_ratio(losses: Numbers, own_losses: Numbers) -> float:
    """Return the ratio of the perplexities, each the exponential of a mean loss."""
    own = as_numbers(own_losses, "loss of an own continuation").mean()
    return math.exp(float(as_numbers(losses, "loss of a continuation").mean() - own))


def repetition(text: str) -> float:
    """Return the share of repeated three-word sequences; 0 for a shorter text."""
    words = text.lower().split()
    runs = [tuple(words[i : i + _RUN]) for i in range(len(words) - _RUN + 1)]
    return 1 - len(set(runs)) / len(runs) if runs else 0.0


def is_language(text: str) -> bool:
    """Tell whether at least half of the words consist of letters or are numbers."""
    words = text.split()
    return bool(words) and 2 * sum(_WORD.fullmatch(word) is not None for word in words) >= len(
        words
    )
