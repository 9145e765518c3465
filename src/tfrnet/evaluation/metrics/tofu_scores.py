"""TOFU's metrics: probability, truth ratio, Model Utility, Forget Quality, memorisation, ROUGE.

Losses are means per labelled answer token, in nats. SciPy and rouge_score are imported where they
are used, since their import is slow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from tfrnet.core.errors import InputError

if TYPE_CHECKING:
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.scoring import Score

Numbers = Sequence[float] | NDArray[np.floating[Any]]
Tokens = Sequence[int] | NDArray[np.integer[Any]]
TruthRatio = Literal["geometric", "arithmetic", "probability"]

UTILITY_PARTS = tuple(
    (split, metric)
    for split in ("retain", "real_authors", "world_facts")
    for metric in ("probability", "rouge", "truth_ratio")
)
"""The nine numbers of Model Utility as (set, metric); nothing from the forget set is among them."""


@dataclass(frozen=True)
class ForgetQuality:
    """The Kolmogorov–Smirnov test between the truth ratios of two models.

    `log10_p` is None if the p-value is too small for a float and is 0.
    """

    p_value: float
    statistic: float
    log10_p: float | None


def as_numbers(values: Numbers, name: str) -> NDArray[np.float64]:
    """Return the values as an array; raise if there are none or one is NaN."""
    array = np.asarray(values, dtype=np.float64)
    if not array.size or np.isnan(array).any():
        raise InputError(f"there must be at least one {name}, and none that is not a number")
    return array


def probability(avg_loss: float) -> float:
    """Return the probability of an answer, normalised for its length."""
    return math.exp(-avg_loss)


def option_probability(gold: float, wrong: Numbers) -> float:
    """Return the share of the right answer's probability; 0 if no answer has any."""
    total = gold + float(np.sum(wrong))
    return gold / total if total > 0 else 0.0


def truth_ratio(
    paraphrase_loss: float, wrong_losses: Numbers, variant: TruthRatio = "geometric"
) -> float:
    """Return how likely wrong answers are relative to the right one, which leads below 1.

    "probability" is the right answer's share instead, from 0 to 1, where higher means better known.
    """
    wrong = as_numbers(wrong_losses, "loss of a wrong answer")
    with np.errstate(over="ignore", invalid="ignore"):
        # Losses are subtracted before exp: the quotient of two underflows would be 0 / 0.
        margins = paraphrase_loss - wrong
        if variant == "arithmetic":
            ratio = float(np.exp(margins).mean())
        else:
            ratio = float(np.exp(margins.mean()))
    if math.isnan(ratio):
        raise InputError(
            "a truth ratio needs losses that are numbers, and not infinite on both sides"
        )
    return 1 / (1 + ratio) if variant == "probability" else ratio


def forget_truth_ratio(ratios: Numbers) -> float:
    """Return the forget set's aggregate: 1 where right and wrong are equally likely."""
    values = as_numbers(ratios, "truth ratio")
    with np.errstate(divide="ignore"):
        return float(np.minimum(values, 1 / values).mean())


def retain_truth_ratio(ratios: Numbers) -> float:
    """Return the aggregate of a retained set: 1 where wrong answers are impossible."""
    return float(np.maximum(0, 1 - as_numbers(ratios, "truth ratio")).mean())


def model_utility(values: Mapping[tuple[str, str], float]) -> float:
    """Return the harmonic mean of the nine numbers of `UTILITY_PARTS`; 0 if one of them is 0."""
    from scipy.stats import hmean

    if set(values) != set(UTILITY_PARTS):
        missing = _names(part for part in UTILITY_PARTS if part not in values)
        unknown = _names(part for part in values if part not in UTILITY_PARTS)
        raise InputError(
            f"Model Utility needs exactly its nine numbers; missing: {missing}; unknown: {unknown}"
        )
    if bad := [part for part, value in values.items() if not 0 <= value < math.inf]:
        raise InputError(f"Model Utility needs numbers of at least 0; not so: {_names(bad)}")
    with np.errstate(over="ignore"):
        return float(hmean(list(values.values())))


def forget_quality(unlearned_ratios: Numbers, oracle_ratios: Numbers) -> ForgetQuality:
    """Test whether the unlearned model's truth ratios look like those of the retain-only model.

    The lowest possible p-value depends on the number of rows, so the rows must be the same.
    """
    from scipy.stats import ks_2samp

    unlearned = as_numbers(unlearned_ratios, "truth ratio")
    oracle = as_numbers(oracle_ratios, "truth ratio")
    if unlearned.size != oracle.size:
        raise InputError(
            f"Forget Quality needs both models measured on the same rows; there are "
            f"{unlearned.size} of the unlearned model and {oracle.size} of the retain-only one"
        )
    test = ks_2samp(unlearned, oracle)
    p_value = float(test.pvalue)
    return ForgetQuality(
        p_value, float(test.statistic), math.log10(p_value) if p_value > 0 else None
    )


def extraction_strength(predictions: Tokens, labels: Tokens, compat: bool = False) -> float:
    """Return the share of the answer, counted from its end, that is predicted without a mistake.

    Both arguments exclude the end-of-sequence token. `compat` computes it as OpenUnlearning does,
    whose search stops at the last token, so a miss there scores 1/n and not 0.
    """
    misses = np.flatnonzero(~_matches(predictions, labels))
    known = len(labels) - (int(misses[-1]) + 1 if misses.size else 0)
    return max(known, 1 if compat else 0) / len(labels)


def exact_memorisation(predictions: Tokens, labels: Tokens) -> float:
    """Return the share of answer tokens predicted correctly, without the end-of-sequence token."""
    return float(_matches(predictions, labels).mean())


def rouge_l(target: str, prediction: str) -> Score:
    """Return precision, recall and F1 (`fmeasure`) of ROUGE-L with stemming."""
    return _scorer().score(target, prediction)["rougeL"]


def rouge_l_recall(target: str, prediction: str) -> float:
    """Return the share of the target's words that the prediction has in the same order."""
    return float(rouge_l(target, prediction).recall)


@cache
def _scorer() -> RougeScorer:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], use_stemmer=True)


def _matches(predictions: Tokens, labels: Tokens) -> NDArray[np.bool_]:
    if len(predictions) != len(labels) or not len(labels):
        raise InputError(
            f"memorisation needs one prediction per answer token and at least one token; "
            f"there are {len(predictions)} predictions and {len(labels)} tokens"
        )
    return np.equal(predictions, labels)


def _names(parts: Iterable[tuple[str, str]]) -> str:
    return ", ".join(" ".join(part) for part in parts) or "none"
