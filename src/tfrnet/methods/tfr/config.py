"""Every number of the method in one place: names, defaults, ranges and what they mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tfrnet.core.errors import InputError
from tfrnet.core.settings import Settings, option

# The paper's method, written out so that a better default never moves its numbers.
_PAPER: dict[str, Any] = {
    "score_tokens": "all",
    "max_length": 256,
    "retain_examples": 24,
    "guard_examples": 64,
    "forget_weight": 1,
    "retain_weight": 1,
    "risk_margin": 1,
    "risk_decay": 0.7,
    "variance_decay": 0.7,
    "hit_decay": 0.7,
    "hit_weight": 1,
    "hit_quantile": 0.9,
    "step": "select",
    "budget": 128,
    "suppress_strength": 1,
    "dormant_threshold": 0.1,
    "max_sparsity": 0.04,
    "current_risk_ceiling": 0.5,
    "history_risk_ceiling": 0.5,
    "recovery_threshold": 0,
    "retain_gain": 1,
    "current_penalty": 1,
    "history_penalty": 1,
    "hit_penalty": 1,
    "recover_strength": 0.5,
    "guard_relative": 0.05,
    "guard_absolute": 0,
    "signed_scores": False,
    "backtracks": 0,
}
# The step that came before `solve`: it costs less and forgets less. The search tuned this one.
FISHER: dict[str, Any] = {"step": "fisher", "steps": 2, "budget": 2048, "backtracks": 4}
# What the search chose of it.
_TUNED_FISHER: dict[str, Any] = {"step_guard": 0.075, "steps": 4, "guard_relative": 0.15}
# What the first results were filed under, though it has no effect with every step.
_FILED_ANYWAY = (
    "suppress_strength",
    "recovery_threshold",
    "retain_gain",
    "current_penalty",
    "history_penalty",
    "hit_penalty",
    "recover_strength",
    "steps",
    "fisher_decay",
    "fisher_damping",
    "step_guard",
    "forget_ceiling",
)
# The step after `solve`, measured on tuning seeds only: benchmarks/notebook/calibrated.md.
_CALIBRATED: dict[str, Any] = {
    "step": "calibrate",
    "steps": 10,
    "step_margin": 3,
    "retain_examples": 240,
    "retain_stiffness": 1000,
    "guard_absolute": 0.02,
    "memory_rows": 160,
    "memory_stiffness": 10,
    "level_quantile": 0.5,
    "give_back": True,
    "hold_rivals": True,
}
# The steps that are the solution of a least move.
SOLVED = ("solve", "calibrate")


@dataclass(frozen=True)
class SharedSettings(Settings):
    """What all steps have in common: channels, examples, risk, trajectory, guard."""

    # Which channels
    target_modules: str | tuple[str, ...] = option(
        "all-linear",
        'projections whose outputs are channels: "all-linear", a list of module names '
        "(whole name or ending), or a regular expression on the whole name; never the LM head",
    )
    layers: tuple[int, ...] | None = option(
        None, "layers whose projections count; none means all", at_least=0
    )

    # Which examples and tokens
    score_tokens: Literal["all", "answer"] = option(
        "all",
        "tokens over which a channel's score is summed: all (non-padding) or only the positions "
        "that predict an answer token",
    )
    max_length: int = option(
        256, "longest example in tokens; a longer one keeps its answer and the prompt's end", 2
    )
    retain_examples: int = option(24, "retain examples scored per request", 1)
    guard_examples: int = option(64, "examples of the guard, fixed for the life of a state", 1)

    # Current risk: eq. current_pathway_risk
    forget_weight: float = option(1.0, "weight of the standardised forget score", 0)
    retain_weight: float = option(1.0, "weight of the standardised retain score", 0)
    risk_margin: float = option(1.0, "margin that the contrast must exceed")

    # Trajectory: eqs. risk_ema to trajectory_priority
    risk_decay: float = option(0.7, "memory of the risk level", 0, 1)
    variance_decay: float = option(0.7, "memory of the risk's variance", 0, 1)
    hit_decay: float = option(0.7, "memory of high-risk occurrences", 0, 1)
    hit_weight: float = option(1.0, "how much repeated occurrences raise the priority", 0)
    hit_quantile: float = option(
        0.9, "a hit is a risk above this quantile of the request's positive risks", 0, 1
    )

    # How the mask moves
    step: Literal["select", "fisher", "solve", "calibrate"] = option(
        "solve",
        "how a request moves the mask: select (the paper's: the channels of highest priority are "
        "scaled down), fisher (many channels a little, by forget gradient over retain Fisher), "
        "solve (the smallest move that takes every forget example to forget_margin) or calibrate "
        "(the same, but each only to where answers are that the model does not know)",
    )
    budget: int | None = option(
        None, "most channels that one step may suppress; none means no limit", 0
    )
    dormant_threshold: float = option(0.1, "a channel at or below this is dormant", 0, 1)
    max_sparsity: float = option(0.04, "largest share of channels that may be dormant", 0, 1)

    # Which suppressed channels may be raised again
    current_risk_ceiling: float = option(
        0.5, "a dormant channel may recover at a current risk up to this", 0
    )
    history_risk_ceiling: float = option(0.5, "and at a previous priority up to this", 0)

    # Guard
    guard_relative: float = option(0.05, "largest relative rise of the guard loss per request", 0)
    guard_absolute: float = option(0.0, "largest absolute rise of the guard loss per request", 0)

    # Ablations
    use_recovery: bool = option(True, "recover dormant channels")
    use_guard: bool = option(True, "reject a request that breaks the guard")
    use_history: bool = option(True, "screen recovery by the previous priority and hits")
    use_retain: bool = option(
        True,
        "let retain scores guide which channels are suppressed; the guard and recovery stay",
    )

    # Beyond the paper
    signed_scores: bool = option(
        False,
        "score a channel by how much suppressing it raises the forget loss; "
        "the paper takes the absolute value",
    )
    backtracks: int = option(
        3, "smaller steps tried, inside the same commit, before a request is rejected", 0, 50
    )
    backtrack_factor: float = option(
        0.4,
        "each smaller step is at most this share of the one before; less where the guard loss "
        "was so far over its limit that less is needed",
        0.01,
        0.99,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_modules in ("", ()):
            raise InputError("target_modules is empty; name at least one projection")
        if isinstance(self.target_modules, str) and self.target_modules != "all-linear":
            try:
                re.compile(self.target_modules)
            except re.error as error:
                raise InputError(
                    f"target_modules is not a valid regular expression: {error}"
                ) from None


@dataclass(frozen=True)
class SelectSettings(Settings):
    """The paper's suppression and recovery, which the Fisher step has in common with it."""

    acts_when: ClassVar[Mapping[str, tuple[Any, ...]]] = {"step": ("select", "fisher")}

    suppress_strength: float = option(
        1.0,
        "select: share taken off a suppressed channel; fisher: how far the strongest channel moves",
        0,
        1,
    )
    recovery_threshold: float = option(
        0.0, "a dormant channel recovers when its recovery score is above this"
    )
    retain_gain: float = option(1.0, "weight of the retain score in the recovery score", 0)
    current_penalty: float = option(1.0, "weight of the current risk in it", 0)
    history_penalty: float = option(1.0, "weight of the previous priority in it", 0)
    hit_penalty: float = option(1.0, "weight of the previous hits in it", 0)
    recover_strength: float = option(0.5, "share of the missing mask that recovery restores", 0, 1)


@dataclass(frozen=True)
class IteratedSettings(Settings):
    """Beyond the paper: several steps a request, weighed by the retain Fisher."""

    acts_when: ClassVar[Mapping[str, tuple[Any, ...]]] = {"step": ("fisher", *SOLVED)}

    steps: int = option(4, "most scored steps per request", 1, 100)
    fisher_decay: float = option(0.9, "memory of the retain Fisher over requests", 0, 1)
    fisher_damping: float = option(0.3, "share of the mean Fisher added to each channel's", 1e-6)


@dataclass(frozen=True)
class FisherSettings(Settings):
    """Beyond the paper: many channels a little, by forget gradient over retain Fisher."""

    acts_when: ClassVar[Mapping[str, tuple[Any, ...]]] = {"step": ("fisher",)}

    step_guard: float = option(0.015, "largest relative rise of the guard loss per step", 0)
    forget_ceiling: float = option(
        6.0, "an example whose loss reaches this many nats counts as forgotten", 0.1
    )


@dataclass(frozen=True)
class RowSettings(Settings):
    """Beyond the paper: a move that is solved for, with a row for all that falls or stays."""

    acts_when: ClassVar[Mapping[str, tuple[Any, ...]]] = {"step": SOLVED}

    hold_guard: bool = option(
        True,
        "hold the guard examples in place as the retain examples are; the guard then still "
        "decides, but is no stranger to the step any more",
    )
    memory_rows: int = option(
        32,
        "directions of the mask that are remembered of earlier requests, and kept from "
        "bringing them back; every one takes four bytes a channel in the state",
        0,
    )
    memory_stiffness: float = option(
        1.0,
        "how strictly what is forgotten stays so: the examples of a request that have "
        "reached their margin before others, and what is remembered of earlier requests",
        0,
    )
    step_margin: float = option(
        10.0,
        "most that one step takes off an example's margin; less after the guard has shortened one",
        0.01,
    )
    forget_stiffness: float = option(
        10.0,
        "how strictly the forget examples' margins fall as far as asked",
        1e-6,
    )
    retain_stiffness: float = option(
        100.0,
        "how strictly the log-odds of the retain examples stay where they are, shared out "
        "among them; those of the guard examples alike",
        0,
    )
    retain_sharpness: float = option(
        0.5,
        "0 keeps the log-odds of all retain examples alike; 1 keeps their losses, so that "
        "answers that are all but certain hardly count",
        0,
        1,
    )


@dataclass(frozen=True)
class SolveSettings(Settings):
    """Beyond the paper, the default: the smallest move that takes every example to its margin."""

    acts_when: ClassVar[Mapping[str, tuple[Any, ...]]] = {"step": ("solve",)}

    forget_margin: float = option(
        -5.0,
        "an example is forgotten when a rival is this far ahead of its answer (in logits, "
        "below 0) at the answer's weakest token",
        at_most=0,
    )
    deep_margin: float = option(
        -20.0,
        "from there all tokens of an answer (but for labels) are lowered to this on "
        "average, compared with deep_rivals others, while it is cheap",
    )
    deep_rivals: int = option(
        64,
        "how many tokens an answer's is then compared with; against few, those may rise "
        "instead of the answer falling",
        1,
    )
    labels: bool = option(
        True,
        "an answer of one token that several retained examples give too (yes, no) is a "
        "label: its rivals are the other labels, and it does not go deep; off, no answer of one "
        "token does",
    )
    cheap_share: float = option(
        1.0,
        "cheap is what leaves the guard's tolerance used up to this share; 1 is all of it",
        0,
        1,
    )


@dataclass(frozen=True)
class CalibrateSettings(Settings):
    """Beyond the paper: each example only to where answers are that the model does not know."""

    acts_when: ClassVar[Mapping[str, tuple[Any, ...]]] = {"step": ("calibrate",)}

    level_quantile: float = option(
        0.25,
        "an answer goes to this quantile of the losses of other answers after its prompt: 0 is "
        "the likeliest of them",
        0,
        1,
    )
    give_back: bool = option(
        False,
        "ask retain examples back to where they were before the first request, not only to where "
        "they were before this one",
    )
    hold_rivals: bool = option(
        False,
        "hold the other answers to a request's prompts in place, so that its own fall behind "
        "them and not with them",
    )


@dataclass(frozen=True)
class TFRConfig(
    CalibrateSettings,
    SolveSettings,
    RowSettings,
    FisherSettings,
    IteratedSettings,
    SelectSettings,
    SharedSettings,
):
    """The settings of TFR-Net: `TFRConfig()` is our best, `TFRConfig.paper()` the paper's method.

    Shared settings, and those of each step; `step` says which of these act, and giving another one
    is an error.
    """

    @classmethod
    def paper(cls, **changes: Any) -> TFRConfig:
        """Return the paper's method and nothing else, with the named fields changed."""
        return cls.from_dict(_PAPER | changes)

    def filed_under(self) -> dict[str, Any]:
        """Return what a finished result is recognised by when it is to be computed again."""
        acting = self.effective()
        values = {n: v for n, v in self.to_dict().items() if n in acting or n in _FILED_ANYWAY}
        # The paper's rule was filed under the one step that it takes.
        return values | ({"steps": 1} if self.step == "select" else {})

    @classmethod
    def presets(cls) -> dict[str, Mapping[str, Any]]:
        """`default` is our best, and what `tuned` means here, `paper` the paper's method.

        `fisher` is the step before, as the search tuned it: at a guard of 15 %. `calibrated` is a
        newer one that keeps more, not yet measured on reporting seeds.
        """
        return {
            "default": {},
            "tuned": {},
            "paper": _PAPER,
            "fisher": FISHER | _TUNED_FISHER,
            "calibrated": _CALIBRATED,
        }
