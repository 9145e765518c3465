"""All settings of TFR-Net: names, defaults, ranges and help texts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tfrnet.core.errors import InputError
from tfrnet.core.guarded_settings import GuardedSettings
from tfrnet.core.settings import Settings, option, same_as
from tfrnet.methods.tfr.presets import (
    CALIBRATED,
    DEEP,
    FISHER,
    PAPER,
    QUICK,
    THOROUGH,
    TUNED_FISHER,
)

if TYPE_CHECKING:
    from tfrnet.core.arrays import Arrays

# Settings that identify the first results even where they have no effect.
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
# The steps that solve for the smallest move.
SOLVED = ("solve", "calibrate")


@dataclass(frozen=True)
class SharedSettings(Settings):
    """Settings of all steps: channels, examples, risk, trajectory, guard."""

    # Which channels
    target_modules: str | tuple[str, ...] = option(
        "all-linear",
        'projections whose outputs are channels: "all-linear", a list of module names '
        "(whole name or ending), or a regular expression on the whole name; never the LM head",
    )
    layers: tuple[int, ...] | None = option(
        None, "layers whose projections are masked; none means all", at_least=0
    )

    # Which examples and tokens
    score_tokens: Literal["all", "answer"] = option(
        "all",
        "tokens that a channel's score is summed over: all but padding, or only the positions that "
        "predict an answer token",
    )
    max_length: int = same_as(GuardedSettings, "max_length")
    retain_examples: int = option(24, "retain examples scored per request", 1)
    guard_examples: int = same_as(GuardedSettings, "guard_examples")

    # Current risk: eq. current_pathway_risk
    forget_weight: float = option(1.0, "weight of the standardised forget score", 0)
    retain_weight: float = option(1.0, "weight of the standardised retain score", 0)
    risk_margin: float = option(
        1.0, "margin by which the weighted forget score must exceed the retain score"
    )

    # Trajectory: eqs. risk_ema to trajectory_priority
    risk_decay: float = option(0.7, "decay of the risk level over requests", 0, 1)
    variance_decay: float = option(0.7, "decay of the risk's variance over requests", 0, 1)
    hit_decay: float = option(0.7, "decay of the hits over requests", 0, 1)
    hit_weight: float = option(1.0, "how much hits raise the priority", 0)
    hit_quantile: float = option(
        0.9, "a hit is a risk above this quantile of the request's positive risks", 0, 1
    )

    # How the mask moves
    step: Literal["select", "fisher", "solve", "calibrate"] = option(
        "calibrate",
        "how a request moves the mask: select (the paper: scale down the channels of highest "
        "priority), fisher (many channels a little, by forget gradient over retain Fisher), solve "
        "(the smallest move that takes every forget example to forget_margin; the settings that go "
        "with it are --preset deep) or calibrate (as solve, but each example only to the level of "
        "answers that the model does not know)",
    )
    budget: int | None = option(
        None, "maximum number of channels that one step suppresses; none means no limit", 0
    )
    dormant_threshold: float = option(
        0.1, "a channel is dormant if its mask is at or below this", 0, 1
    )
    max_sparsity: float = option(0.04, "maximum share of dormant channels", 0, 1)

    # Which suppressed channels may be raised again
    current_risk_ceiling: float = option(
        0.5, "maximum current risk of a channel that may recover", 0
    )
    history_risk_ceiling: float = option(0.5, "maximum previous priority of such a channel", 0)

    # Guard
    guard_relative: float = same_as(GuardedSettings, "guard_relative")
    guard_absolute: float = same_as(GuardedSettings, "guard_absolute")
    drift_limit: float | None = same_as(GuardedSettings, "drift_limit")

    # Ablations
    use_recovery: bool = option(True, "recover dormant channels")
    use_guard: bool = same_as(GuardedSettings, "use_guard")
    use_history: bool = option(True, "screen recovery by the previous priority and hits")
    use_retain: bool = option(
        True,
        "use retain scores to choose what is suppressed; guard and recovery use them anyway",
    )

    # Beyond the paper
    signed_scores: bool = option(
        False,
        "score a channel by how much suppressing it raises the forget loss; "
        "the paper takes the absolute value",
    )
    backtracks: int = option(
        3, "number of smaller steps to try before a request is rejected", 0, 50
    )
    backtrack_factor: float = option(
        0.4,
        "maximum size of each smaller step relative to the one before; it is smaller if the guard "
        "loss was far over its limit",
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
        if self.score_tokens == "answer" and self.step != "select":
            raise InputError(
                "score_tokens=answer needs step=select: the other steps take the gradient of the "
                "whole loss, to which the mask at every token belongs"
            )


@dataclass(frozen=True)
class SelectSettings(Settings):
    """The paper's suppression and recovery, which the Fisher step uses too."""

    acts_when: ClassVar[Mapping[str, tuple[Any, ...]]] = {"step": ("select", "fisher")}

    suppress_strength: float = option(
        1.0,
        "select: share taken off a suppressed channel; fisher: how far the strongest one moves",
        0,
        1,
    )
    recovery_threshold: float = option(
        0.0, "a dormant channel recovers when its recovery score is above this"
    )
    retain_gain: float = option(1.0, "weight of the retain score in the recovery score", 0)
    current_penalty: float = option(1.0, "weight of the current risk in the recovery score", 0)
    history_penalty: float = option(1.0, "weight of the previous priority in the recovery score", 0)
    hit_penalty: float = option(1.0, "weight of the previous hits in the recovery score", 0)
    recover_strength: float = option(0.5, "share of the distance to 1 that recovery restores", 0, 1)


@dataclass(frozen=True)
class IteratedSettings(Settings):
    """Beyond the paper: several steps per request, weighted by the retain Fisher."""

    acts_when: ClassVar[Mapping[str, tuple[Any, ...]]] = {"step": ("fisher", *SOLVED)}

    steps: int = option(10, "maximum number of steps per request", 1, 100)
    fisher_decay: float = option(0.9, "decay of the retain Fisher over requests", 0, 1)
    fisher_damping: float = option(0.3, "share of the mean Fisher added to each channel's", 1e-6)


@dataclass(frozen=True)
class FisherSettings(Settings):
    """Beyond the paper: many channels a little, by forget gradient over retain Fisher."""

    acts_when: ClassVar[Mapping[str, tuple[Any, ...]]] = {"step": ("fisher",)}

    step_guard: float = option(0.015, "maximum relative rise of the guard loss per step", 0)
    forget_ceiling: float = option(
        6.0, "an example whose loss reaches this many nats counts as forgotten", 0.1
    )


@dataclass(frozen=True)
class RowSettings(Settings):
    """Beyond the paper: settings of the solved steps, with one equation per example."""

    acts_when: ClassVar[Mapping[str, tuple[Any, ...]]] = {"step": SOLVED}

    hold_guard: bool = option(
        False,
        "hold the guard examples in place like the retain examples; the guard still decides, but "
        "it is then no independent check",
    )
    guard_apart: bool = option(
        True,
        "leave what is among the guard examples out of the retain examples that a request uses, "
        "unless less than half of these would be left",
        when={"hold_guard": (False,)},
        before=False,
    )
    memory_rows: int = option(
        160,
        "maximum number of mask directions remembered from earlier requests, so that later ones do "
        "not undo them; each takes four bytes per channel in the state",
        0,
    )
    memory_stiffness: float = option(
        10.0,
        "how strictly forgotten examples stay forgotten, of this request and of earlier ones",
        0,
    )
    memory_fall: float = option(
        0.0,
        "log-odds (of deep: margin) by which each request lowers what earlier ones made the model "
        "forget, since with every request a little of it comes back; 0 holds it where it is, and "
        "memory_rows=0 or use_history=false leaves nothing to lower",
        0,
        before=0.0,
    )
    step_margin: float = option(
        3.0,
        "maximum change of an example's margin in one step; less after the guard shortened one",
        0.01,
    )
    forget_stiffness: float = option(
        10.0,
        "how strictly the margins of forget examples reach their target",
        1e-6,
    )
    retain_stiffness: float = option(
        1000.0,
        "how strictly the log-odds of the retain examples stay in place, divided among them; "
        "the same for the guard examples",
        0,
    )
    retain_sharpness: float = option(
        0.5,
        "0 holds the log-odds of all retain examples equally; 1 holds their losses, so that "
        "nearly certain answers hardly count",
        0,
        1,
    )


@dataclass(frozen=True)
class SolveSettings(Settings):
    """Beyond the paper: the smallest move that takes every example to its margin."""

    acts_when: ClassVar[Mapping[str, tuple[Any, ...]]] = {"step": ("solve",)}

    forget_margin: float = option(
        -5.0,
        "an example counts as forgotten when its answer is this far behind a rival token (in "
        "logits, so below 0) at the answer's weakest token",
        at_most=0,
    )
    deep_margin: float = option(
        -20.0,
        "then all tokens of an answer (except labels) are lowered to this margin on average over "
        "deep_rivals rivals, as long as it is cheap (cheap_share)",
    )
    deep_rivals: int = option(
        64,
        "number of rivals of each token for deep_margin; with few, these may rise instead of the "
        "answer falling",
        1,
    )
    labels: bool = option(
        True,
        "treat one-token answers that several retain examples share (yes, no) as labels: their "
        "rivals are the other labels, and deep_margin is not for them; if false, it is for no "
        "one-token answer",
    )
    cheap_share: float = option(
        1.0,
        "deep_margin is pursued while at most this share of the guard's tolerance is used",
        0,
        1,
    )


@dataclass(frozen=True)
class CalibrateSettings(Settings):
    """Beyond the paper (the default): lower answers only to the level of ones it does not know."""

    acts_when: ClassVar[Mapping[str, tuple[Any, ...]]] = {"step": ("calibrate",)}

    level_quantile: float = option(
        0.3,
        "an answer is lowered to this quantile of the losses of other answers to its prompt, or of "
        "the nearest reference examples if there are such; 0 is the most likely of them. Without "
        "reference examples it does not act on passages, whose tokens have levels of their own",
        0,
        1,
    )
    give_back: bool = option(
        True,
        "restore retain examples to where they were before the first request, not only before "
        "this one",
    )
    hold_rivals: bool = option(
        True,
        "hold other answers to the request's prompts in place, so that its own answers fall "
        "relative to them",
    )
    use_wrong_answers: bool = option(
        True,
        "lower an answer to the median loss of the example's wrong_answers, if it names some; not "
        "where answers are symbols",
        before=False,
    )
    request_rivals: bool = option(
        True,
        "take other answers to a prompt from the request's other examples too, not only from "
        "retain examples",
        before=False,
    )
    own_symbols: bool = option(
        True,
        "take a number of up to four digits for digits, and yes and no for labels, also where the "
        "retain data has no such answer, as in text that the model wrote itself",
        before=False,
    )
    every_digit: bool = option(
        True,
        "where the retain data tells that a number is in digits, and it has more than four, lower "
        "all of its digits to a guess and not only the weakest; what most numbers of the retain "
        "data begin with stays",
        before=False,
    )
    hold_written: int = option(
        0,
        "number of other answers to each prompt that the untouched model writes itself and that "
        "are held in place; none where answers are symbols",
        0,
        before=0,
    )
    siblings: int = option(
        24,
        "number of texts that are held in place as retain examples are: the model writes them "
        "itself, beginning as a prompt of the request does; where answers are symbols, none but "
        "for number_siblings",
        0,
        before=0,
    )
    number_siblings: bool = option(
        True,
        "where answers are numbers of up to four digits, each a token, and the retain data has no "
        "number, let the siblings be the same prompts with other digits, and the answers that the "
        "untouched model gives to them",
        when={"untouched_siblings": (True,), "own_symbols": (True,)},
        before=False,
    )
    near_examples: int | None = option(
        6,
        "number of further retain examples held in place for each forget example: those nearest to "
        "it; none means that half of retain_examples are the nearest to the request",
        0,
        before=None,
    )
    held_rivals: int | None = option(
        8,
        "maximum number of other answers that hold_rivals holds for each prompt; none means all",
        1,
        when={"hold_rivals": (True,)},
        before=None,
    )
    untouched_siblings: bool = option(
        True,
        "let the untouched model write the siblings, without those forgotten since; they are "
        "restored as retain examples are, and an answer is compared with theirs first",
        before=False,
    )
    repairs: int = option(
        0,
        "number of steps after the forgetting ones that bring other retain examples back to where "
        "they were before the first request, whatever give_back says, and then lower again what "
        "came back; not done with memory_rows=0 or without use_history",
        0,
        before=0,
    )
    repair_examples: int = option(
        240,
        "maximum number of retain examples that each of the repairs brings back",
        1,
        before=240,
    )
    least_reached: float = option(
        0.5,
        "a request is rejected if the guard allows less than this share of the way to its levels, "
        "on average over examples; 0 accepts any",
        0,
        1,
        before=0.0,
    )


@dataclass(frozen=True)
class TFRConfig(
    CalibrateSettings,
    SolveSettings,
    RowSettings,
    FisherSettings,
    IteratedSettings,
    SelectSettings,
    GuardedSettings,
    SharedSettings,
):
    """The settings of TFR-Net: `TFRConfig()` is our best, `TFRConfig.paper()` the paper's method.

    It has shared settings and those of each step. A setting of a step other than `step` is an
    error.
    """

    about: ClassVar[str] = "TFR-Net: a mask on output channels, guarded; the weights stay frozen"
    has_mask: ClassVar[bool] = True
    reference_when: ClassVar[Mapping[str, tuple[Any, ...]] | None] = {"step": ("calibrate",)}

    # Where the guard loss is low, 5 % of it is less than what any request costs.
    guard_absolute: float = same_as(GuardedSettings, "guard_absolute", 0.02)

    @classmethod
    def state_problem(cls, arrays: Arrays, layout: list[list[Any]]) -> str:
        """Return what is wrong with the tensors of a state, or nothing."""
        channels = sum(width for _, width in layout)
        return super().state_problem(arrays, layout) or _channel_problem(arrays, channels)

    @classmethod
    def paper(cls, **changes: Any) -> TFRConfig:
        """Return the paper's method with the given changes."""
        return cls.from_dict(PAPER | changes)

    @property
    def can_repair(self) -> bool:
        """Whether there are repairs, and something that holds what earlier requests forgot."""
        remembers = self.use_history and self.memory_rows > 0
        return bool(self.effective().get("repairs")) and self.use_retain and remembers

    @property
    def leaves_guard_out(self) -> bool:
        """Whether requests do without the guard's examples where there are enough others."""
        return bool(self.effective().get("guard_apart"))

    def filed_under(self) -> dict[str, Any]:
        """Return the settings that finished results are identified by."""
        # Results have guard data of their own, so that there is nothing to leave out.
        acting = self.effective().keys() - {"guard_apart"}
        filed = super().filed_under()
        values = {n: v for n, v in filed.items() if n in acting or n in _FILED_ANYWAY}
        # Results of the paper's method were saved with its single step.
        return values | ({"steps": 1} if self.step == "select" else {})

    @classmethod
    def presets(cls) -> dict[str, Mapping[str, Any]]:
        """Return the presets: `default` is our best, `quick` its cheaper form, `paper` theirs.

        `thorough` brings more retain examples back, for much retain data with long answers.
        `deep`, also `tuned` and `published`, has a higher Trade-off as the paper defines it.
        `fisher` is cheaper; it was tuned by the search, with a guard of 15 %. `calibrated` goes
        deeper than the default and holds more retain examples.
        """
        return {
            "default": {},
            "quick": QUICK,
            "thorough": THOROUGH,
            "tuned": DEEP,
            "published": DEEP,
            "deep": DEEP,
            "paper": PAPER,
            "fisher": FISHER | TUNED_FISHER,
            "calibrated": CALIBRATED,
        }


def _channel_problem(arrays: Arrays, channels: int) -> str:
    """Return what is wrong with the tensors of a state with this many channels, or nothing."""
    remembered = len(arrays.get("forgotten", ()))
    shapes = {"forgotten": (remembered, channels), "forgotten_falls": (remembered,)}
    for name, array in arrays.items():
        expected = shapes.get(name, (channels,))
        if array.dtype != "float32" or array.shape != expected:
            return f"{name} is {array.dtype} of shape {array.shape}, not {expected[-1]} floats"
    mask = arrays["mask"]
    if not ((mask >= 0) & (mask <= 1)).all():
        return "the mask leaves [0, 1]"
    return ""


CONFIG = TFRConfig
