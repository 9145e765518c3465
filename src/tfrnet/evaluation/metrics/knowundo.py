"""KnowUnDo's published scores, in percent but for the perplexity.

They are of teacher-forced answers: an item's accuracy is the share of the answer's tokens that are
the model's first choice.
"""

from __future__ import annotations

import math

from tfrnet.evaluation.metrics.tofu_scores import Numbers, as_numbers


def unlearn_success(shares: Numbers) -> float:
    """Return the accuracy that is missing on what was to be unlearned."""
    return 100 - retention_success(shares)


def retention_success(shares: Numbers) -> float:
    """Return the accuracy on what was to be retained, averaged over items."""
    return 100 * float(as_numbers(shares, "share of an answer's tokens").mean())


def perplexity(losses: Numbers) -> float:
    """Return the exponential of the mean of the items' mean losses."""
    return math.exp(float(as_numbers(losses, "loss").mean()))
