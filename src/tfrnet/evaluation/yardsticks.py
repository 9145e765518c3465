"""The honest measures of a stream: their names, what they mean, and how they are put together.

They are made from plain JSON values, so a cell of a bench and a state are measured alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from tfrnet.evaluation.metrics.oracle import Answers, oracle_distance, over_forgetting
from tfrnet.evaluation.metrics.requested import honest_scores

Figures = dict[str, float | None]
TEXT = "text"


@dataclass(frozen=True)
class Yardstick:
    """A measure: its title, what it means in one line, and how many digits it is shown with."""

    title: str
    meaning: str
    digits: int = 1


YARDSTICKS = {
    "trade_off": Yardstick(
        "Trade-off (paper)",
        "The paper's score: balance of wrong answers on all items of the stream, requested or "
        "not, and held-out accuracy. Higher is better.",
    ),
    "honest_trade_off": Yardstick(
        "Honest Trade-off",
        "Balance of forgetting, on items requested so far and not below chance, and what is left "
        "of held-out accuracy. Higher is better.",
    ),
    "unseen": Yardstick(
        "Not yet requested",
        "Items nobody has asked to forget yet that are still right, %. Higher is better.",
    ),
    "same_topic": Yardstick(
        "Same topic",
        "Kept items on the topic of forgotten ones that are right at the end, in % of those right "
        "before. Higher is better.",
    ),
    "witness": Yardstick(
        "Witness",
        "Loss of fresh examples that neither step nor guard has seen, as a multiple of what it "
        "was, in the worst group. 1 is untouched.",
        2,
    ),
    TEXT: Yardstick("General text", "The same of general text.", 2),
    "oracle_accuracy": Yardstick(
        "Oracle: accuracy",
        "Accuracy on forgotten items minus that of a model never trained on them, points. 0 is "
        "ideal.",
    ),
    "oracle_losses": Yardstick(
        "Oracle: losses",
        "Distance of the losses' distribution from that model's (Kolmogorov-Smirnov). 0 is ideal, "
        "1 the farthest.",
        2,
    ),
    "oracle_agreement": Yardstick(
        "Oracle: agreement", "Forgotten items answered as that model answers them, %."
    ),
    "over_forgetting": Yardstick(
        "Over-forgotten",
        "Forgotten answers less likely than that model's first percentile, %. About 1 is ideal.",
    ),
    "perplexity_ratio": Yardstick(
        "Fluency",
        "Perplexity, under the untouched model, of what is said to forgotten prompts, as a "
        "multiple of its own. 1 is fluent.",
        2,
    ),
    "repeated": Yardstick(
        "Repeated", "Runs of three words in that text that were there before, %."
    ),
    "not_language": Yardstick("Not language", "Such texts that are not language, %."),
}


def honest_figures(
    forgetting: Mapping[str, Any], checkpoints: Sequence[Mapping[str, Any]], chance: float
) -> Figures:
    """Return the honest Trade-off with its two sides, and what is left of items yet to come.

    The first checkpoint is before any request; `forgetting` has what every request did.
    """
    first, *points = checkpoints
    numbers = [point["request"] for point in points]
    seen, unseen = forgetting["seen"], forgetting["unseen"]
    scores = honest_scores(
        fmean(forgetting["accuracy"]["before"]),
        [seen[number - 1] for number in numbers],
        chance,
        fmean(first["retain"].values()),
        [fmean(point["retain"].values()) for point in points],
    )
    # After the last request nothing is left to be requested.
    later = [unseen[number - 1] for number in numbers if number <= len(unseen)]
    return {
        "honest_trade_off": scores.trade_off if scores else None,
        "forgotten": scores.forgotten if scores else None,
        "kept": scores.kept if scores else None,
        "unseen": fmean(later) if later else None,
    }


def bystander_summary(found: Mapping[str, Any]) -> Figures:
    """Return one number for each kind of side effect; nothing where none was measured."""
    if not found:
        return {}
    topic, ratios = found["same_topic"], found["witness"]
    tasks = [value for group, value in ratios.items() if group != TEXT]
    return {
        "same_topic": 100 * topic["now"] / topic["before"] if topic["before"] else None,
        "witness": max(tasks, default=None),
        TEXT: ratios.get(TEXT),
        **found["fluency"],
    }


def oracle_figures(own: Answers, oracle: Answers) -> Figures:
    """Return the distances to a model that was never trained on the items."""
    distance = asdict(oracle_distance(own, oracle))
    return {f"oracle_{name}": value for name, value in distance.items()} | {
        "over_forgetting": over_forgetting(own.losses, oracle.losses)
    }
