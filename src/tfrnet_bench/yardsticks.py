"""The honest measures of a stream's result; None for what an older result does not hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from statistics import fmean

from tfrnet.evaluation.metrics.oracle import oracle_distance, over_forgetting
from tfrnet.evaluation.metrics.requested import honest_scores
from tfrnet_bench.results import CellResult

Figures = Mapping[str, float | None]

# What each measure means, in one line.
MEANINGS = {
    "trade_off": "The paper's score: balance of wrong answers on all items of the stream, "
    "requested or not, and held-out accuracy. Higher is better.",
    "honest_trade_off": "Balance of forgetting, on items requested so far and not below chance, "
    "and what is left of held-out accuracy. Higher is better.",
    "unseen": "Items nobody has asked to forget yet that are still right, %. Higher is better.",
    "same_topic": "Kept items on the topic of forgotten ones that are right at the end, in % of "
    "those right before. Higher is better.",
    "witness": "Loss of fresh examples that neither step nor guard has seen, as a multiple of "
    "what it was, in the worst group. 1 is untouched.",
    "text": "The same of general text.",
    "oracle_accuracy": "Accuracy on forgotten items minus that of a model never trained on them, "
    "points. 0 is ideal.",
    "oracle_losses": "Distance of the losses' distribution from that model's "
    "(Kolmogorov-Smirnov). 0 is ideal, 1 the farthest.",
    "oracle_agreement": "Forgotten items answered as that model answers them, %.",
    "over_forgetting": "Forgotten answers less likely than that model's first percentile, %. "
    "About 1 is ideal.",
    "perplexity_ratio": "Perplexity, under the untouched model, of what is said to forgotten "
    "prompts, as a multiple of its own. 1 is fluent.",
    "repeated": "Runs of three words in that text that were there before, %.",
    "not_language": "Such texts that are not language, %.",
}


def honest(result: CellResult) -> Figures:
    """Return the measures that need no other result."""
    points = [point for point in result.checkpoints if point["request"]]
    numbers = [point["request"] for point in points]
    seen, unseen = (result.forgetting[name] for name in ("seen", "unseen"))
    scores = honest_scores(
        fmean(result.forgetting["accuracy"]["before"]),
        [seen[number - 1] for number in numbers],
        result.floors["forget"]["random"],
        fmean(result.checkpoints[0]["retain"].values()),
        [fmean(point["retain"].values()) for point in points],
    )
    # After the last request nothing is left to be requested.
    later = [unseen[number - 1] for number in numbers if number <= len(unseen)]
    return {
        "trade_off": result.scores.get("trade_off"),
        "honest_trade_off": scores.trade_off if scores else None,
        "forgotten": scores.forgotten if scores else None,
        "kept": scores.kept if scores else None,
        "unseen": fmean(later) if later else None,
    } | _bystanders(result)


def against_oracle(result: CellResult, oracle: CellResult | None) -> Figures:
    """Return the distances to the model that never saw the stream's items, at the end."""
    own, other = result.items, oracle.items if oracle else {}
    if not ("losses" in own and "losses" in other and own["keys"] == other["keys"]):
        return {}
    losses, known = own["losses"]["after"], other["losses"]["after"]
    distance = oracle_distance(
        _right(own["correct"][-1]),
        losses,
        own["said"],
        _right(other["correct"][-1]),
        known,
        other["said"],
    )
    return {f"oracle_{name}": value for name, value in asdict(distance).items()} | {
        "over_forgetting": over_forgetting(losses, known)
    }


def measure(
    name: str, oracles: Mapping[int, CellResult] | None = None
) -> Callable[[CellResult], float | None]:
    """Return a function that reads one of the measures from a result."""

    def read(result: CellResult) -> float | None:
        oracle = (oracles or {}).get(result.seed)
        return {**honest(result), **against_oracle(result, oracle)}.get(name)

    return read


def _bystanders(result: CellResult) -> dict[str, float | None]:
    found = result.bystanders
    if not found:
        return {}
    topic, ratios = found["same_topic"], found["witness"]
    tasks = [value for group, value in ratios.items() if group != "text"]
    return {
        "same_topic": 100 * topic["now"] / topic["before"] if topic["before"] else None,
        "witness": max(tasks, default=None),
        "text": ratios.get("text"),
        **found["fluency"],
    }


def _right(bits: str) -> list[bool]:
    return [bit == "1" for bit in bits]
