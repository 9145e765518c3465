"""Membership-inference attacks and the metrics based on their AUCs.

Members are the forget set, non-members a holdout set that no model was trained on. Every score is
higher for likely non-members, so an AUC of 1 means a fully memorised forget set. The two sets
differ in wording and length, so the target is the retain-only model's AUC, not 0.5.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tfrnet.core.errors import InputError
from tfrnet.evaluation.metrics.intervals import CONFIDENCE, Interval
from tfrnet.evaluation.metrics.tofu_scores import Numbers, as_numbers

Sides = tuple[Numbers, Numbers]
"""One attack's scores of one model: of the members, and of the non-members."""

MIN_VARIANCE = 1e-6
NEEDS_ORACLE = "{} needs the retain-only model's AUC; give --oracle MODEL"


@dataclass(frozen=True)
class PrivLeak:
    """Three readings of "deviation from the retain-only model" in percent; None if divided by 0.

    `signed` is OpenUnlearning's: negative where too little was forgotten, positive where too much.
    """

    signed: float | None
    ratio: float | None
    difference: float

    @property
    def absolute(self) -> float | None:
        """The absolute value of `signed`."""
        return None if self.signed is None else abs(self.signed)


@dataclass(frozen=True)
class PairedIntervals:
    """Percentile intervals of the unlearned model compared with the retain-only one.

    `privleak` is for the signed reading; None if it is undefined in some resample.
    """

    auc_difference: Interval
    privleak: Interval | None


@dataclass(frozen=True)
class BlindBaselines:
    """AUCs from the answers' texts alone, without a model.

    `inverse_compressed_length` is ZLIB's AUC for a model with the same loss for every answer.
    """

    compressed_length: float
    inverse_compressed_length: float
    answer_length: float


def loss_score(log_probs: Numbers) -> float:
    """LOSS: the mean loss of the answer's tokens."""
    return -float(as_numbers(log_probs, "token log-probability").mean())


def zlib_score(log_probs: Numbers, answer_text: str) -> float:
    """ZLIB: the mean loss per byte of the compressed answer."""
    return loss_score(log_probs) / _compressed_length(answer_text)


def min_k_score(log_probs: Numbers, k: float = 0.4) -> float:
    """Min-K%: the mean loss of the least likely share `k` of tokens; 0 without tokens."""
    if not 0 < k <= 1:
        raise InputError(f"the share k of an attack must be above 0 and at most 1, not {k}")
    if not len(log_probs):
        return 0.0
    values = np.sort(as_numbers(log_probs, "token log-probability"))
    return -float(values[: max(1, int(k * values.size))].mean())


def min_k_plus_plus_score(
    log_probs: Numbers, mean: Numbers, variance: Numbers, k: float = 0.4
) -> float:
    """Min-K%++: Min-K% of log-probabilities standardised by those of the whole vocabulary.

    `mean` and `variance` are the vocabulary's at each position, weighted by its probabilities. The
    variance of a uniform prediction is 0, hence the clamp.
    """
    if not len(log_probs) == len(mean) == len(variance):
        raise InputError("Min-K%++ needs one mean and one variance for each token")
    sigma = np.sqrt(np.maximum(variance, MIN_VARIANCE))
    return min_k_score((np.asarray(log_probs, dtype=np.float64) - mean) / sigma, k)


def reference_score(loss: float, reference_loss: float) -> float:
    """Reference: the loss beyond that of another model, which has not seen the answer."""
    return loss - reference_loss


def gradient_norm_score(norms: Numbers) -> float:
    """GradNorm: the mean of the weight tensors' gradient norms, not the norm of all together."""
    return float(as_numbers(norms, "gradient norm").mean())


def auc(members: Numbers, non_members: Numbers) -> float:
    """Return the chance that a non-member scores above a member; ties count half."""
    from sklearn.metrics import roc_auc_score

    sides = [as_numbers(members, "member's score"), as_numbers(non_members, "non-member's score")]
    # The order is all that counts, and scikit-learn refuses the infinite loss of a broken model.
    ranks = np.unique(np.concatenate(sides), return_inverse=True)[1]
    return float(roc_auc_score(np.repeat([0, 1], [side.size for side in sides]), ranks))


def mia_gap(aucs: Numbers) -> float:
    """Return the mean distance of the attacks' AUCs from 0.5."""
    return float(np.abs(as_numbers(aucs, "AUC") - 0.5).mean())


def privleak(auc_unlearned: float, auc_oracle: float | None) -> PrivLeak:
    """Compare the AUC of one attack (by convention Min-K%) with the retain-only model's."""
    oracle = _oracle(auc_unlearned, auc_oracle, "PrivLeak")
    difference = 100 * abs(auc_unlearned - oracle)
    return PrivLeak(
        signed=100 * (oracle - auc_unlearned) / (1 - oracle) if oracle < 1 else None,
        ratio=difference / oracle if oracle > 0 else None,
        difference=difference,
    )


def privacy_score(auc_unlearned: float, auc_oracle: float | None) -> float:
    """Return 1 if the AUCs are equal, 0 if they differ by at least the retain-only model's AUC."""
    oracle = _oracle(auc_unlearned, auc_oracle, "The privacy score")
    if oracle == 0:
        return 1.0 if auc_unlearned == 0 else 0.0
    return max(0.0, 1 - abs(auc_unlearned - oracle) / oracle)


def mean_privacy_score(scores: Numbers) -> float:
    """Return the harmonic mean over the attacks; 0 if one of them is 0."""
    from scipy.stats import hmean

    return float(hmean(as_numbers(scores, "privacy score")))


def bootstrap_privacy(
    unlearned: Sides, oracle: Sides | None, seed: int, resamples: int = 1000
) -> PairedIntervals:
    """Bootstrap members and non-members separately, with the same resamples for both models."""
    if oracle is None:
        raise InputError(NEEDS_ORACLE.format("PrivLeak"))
    wins_u, wins_r = _wins(*unlearned), _wins(*oracle)
    if wins_u.shape != wins_r.shape:
        raise InputError("a paired interval needs both models measured on the same rows")
    generator = np.random.default_rng(seed)
    # Counts how often each item is drawn, so the AUCs of all resamples take two matrix products.
    members, others = (generator.multinomial(n, [1 / n] * n, resamples) for n in wins_u.shape)
    auc_u = ((members @ wins_u) * others).sum(axis=1) / wins_u.size
    auc_r = ((members @ wins_r) * others).sum(axis=1) / wins_r.size
    ends = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    difference = Interval(*np.quantile(auc_u - auc_r, ends).tolist())
    if (auc_r == 1).any():
        return PairedIntervals(difference, None)
    leak = 100 * (auc_r - auc_u) / (1 - auc_r)
    return PairedIntervals(difference, Interval(*np.quantile(leak, ends).tolist()))


def blind_baselines(members: Sequence[str], non_members: Sequence[str]) -> BlindBaselines:
    """Return the AUCs of the answers' lengths: in compressed bytes, inverted, in characters."""
    compressed = [[_compressed_length(text) for text in side] for side in (members, non_members)]
    inverse = [[1 / length for length in side] for side in compressed]
    return BlindBaselines(
        auc(*compressed), auc(*inverse), auc([*map(len, members)], [*map(len, non_members)])
    )


def _compressed_length(text: str) -> int:
    return len(zlib.compress(text.encode()))


def _oracle(auc_unlearned: float, auc_oracle: float | None, name: str) -> float:
    """Raise without a retain-only model: comparing with 0.5 would be a different metric."""
    if auc_oracle is None:
        raise InputError(NEEDS_ORACLE.format(name))
    if not (0 <= auc_unlearned <= 1 and 0 <= auc_oracle <= 1):
        raise InputError(f"an AUC is from 0 to 1; {auc_unlearned} and {auc_oracle} are not both")
    return auc_oracle


def _wins(members: Numbers, non_members: Numbers) -> NDArray[np.float64]:
    """Return 1, 0.5 or 0 for each pair; their weighted mean is the AUC of a resample."""
    lower = as_numbers(members, "member's score")[:, None]
    higher = as_numbers(non_members, "non-member's score")[None, :]
    wins: NDArray[np.float64] = (higher > lower) + 0.5 * (higher == lower)
    return wins
