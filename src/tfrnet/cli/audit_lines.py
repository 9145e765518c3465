"""What was measured of a request, as lines for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfrnet.audit.change import Change
from tfrnet.audit.figures import Figures
from tfrnet.core.loss_words import group_words

if TYPE_CHECKING:
    from tfrnet.core.drift import Drift
    from tfrnet.core.outcome import Outcome


def observed_lines(outcome: Outcome, drift: Drift | None) -> list[str]:
    """Return what a request did besides: groups, the model's answers, audit, hold-out data."""
    lines = []
    if outcome.guard_groups:
        lines.append(f"  guard by group: {group_words(outcome.to_dict()['guard_groups'])}")
    if not outcome.accepted:
        return lines
    lines += answer_lines(outcome.answers)
    if outcome.audit:
        lines.append(f"  audit: {Figures.from_dict(outcome.audit).verdict}")
    if outcome.holdout:
        lines.append(f"  hold-out: {holdout_words(outcome.holdout)}")
    if outcome.audit and drift:
        lines.append(f"  total drift: {drift.words}")
    return lines


def answer_lines(answers: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return prompts with the model's answers before and after, each on a line."""
    return [
        f"  {name:<7} {' '.join(text.split())}"
        for answer in answers
        for name, text in zip(("prompt", "before", "after"), answer, strict=True)
    ]


def holdout_words(values: Mapping[str, Any]) -> str:
    """Return in a few words what a request did to the hold-out data, and all before it."""
    change = Change.from_dict(values)
    return (
        f"loss {change.loss_before:.3f} -> {change.loss_after:.3f} ({change.words}; "
        f"{change.loss_untouched:.3f} untouched, {change.examples} examples)"
    )


def wordings_words(values: Mapping[str, Any]) -> str:
    """Return in how many wordings an answer was given, and is, from a ledger line's figures."""
    return Figures.from_dict(values).all_wordings.words
