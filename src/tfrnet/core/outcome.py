"""The result of a request, as shown to the user and recorded in the ledger."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Outcome:
    """The record of one request; sizes are numbers of channels, losses means over examples.

    For a rejected request, the losses after it and the sizes are those of the rejected candidate;
    the counts of suppressed and dormant channels and the capacity are always the state's. Fields
    that a method does not have are None: sizes without a mask, retain loss without retain data.

    `guard_groups` are the losses `before` and `after` of each group of guard examples, if they name
    any. `mask` says how strong the state's mask is, as `MaskStrength` has it. `checked` is whether
    the guard could have rejected the request.

    `seconds` are by stage, with their `total`. `memory` is in bytes: `peak` while the request ran,
    `before` it began, and `state`, the size of what is committed. `details` is what a method adds.
    `holdout` is the loss on the user's own hold-out data, empty if there is none: of the untouched
    model, before and after the request, and the standard error of the change. `audit` are the
    figures of `tfrnet.audit.figures`, empty without an audit. `answers` are a few prompts, each
    with the model's answer before and after; they are words, so no record holds them.
    """

    id: str
    outcome: Literal["accepted", "rejected"]
    reason: str
    forget_loss_before: float
    forget_loss_after: float
    guard_loss_before: float
    guard_loss_after: float
    retain_loss_before: float | None = None
    selected: int | None = None  # |P|
    recovery_pool: int | None = None  # |Q|
    recovered: int | None = None  # |U|
    suppressed_now: int | None = None  # mask below 1, in the state after the request
    dormant: int | None = None
    capacity: float | None = None
    mask: Mapping[str, int | float] | None = None
    checked: bool = True
    attempts: int = 1
    top_channels: tuple[int, ...] = ()  # highest chi first
    method: str = "tfr"
    seconds: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    guard_groups: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    holdout: Mapping[str, Any] = field(default_factory=dict)
    audit: Mapping[str, Any] = field(default_factory=dict)
    answers: tuple[tuple[str, str, str], ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether the request was accepted."""
        return self.outcome == "accepted"

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON values; a number that is not finite becomes null."""
        values = asdict(self) | {"top_channels": list(self.top_channels)}
        del values["answers"]
        for name in ("guard_groups", "holdout", "audit"):
            if not values[name]:
                del values[name]
        return _plain(values)


def verdict(record: Mapping[str, Any]) -> str:
    """Return what became of a request in words, from its record.

    Nothing can be said to be accepted where no guard could have rejected it.
    """
    # Records of before do not say whether there was a guard; its reason does.
    checked = record.get("checked", record["reason"] != "guard off")
    if record["outcome"] == "accepted" and not checked:
        return "applied, not checked"
    return str(record["outcome"])


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain_value(value) for name, value in values.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _plain(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
