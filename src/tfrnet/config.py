"""Every number of the method in one place: names, defaults, ranges and what they mean."""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tfrnet.errors import InputError


def _option(
    default: Any, text: str, at_least: float | None = None, at_most: float | None = None
) -> Any:
    return field(default=default, metadata={"help": text, "min": at_least, "max": at_most})


@dataclass(frozen=True)
class TFRConfig:
    """The settings of TFR-Net: `TFRConfig()` is our best, `TFRConfig.paper()` the paper's method.

    A config is immutable and valid: a value out of range or a NaN raises `InputError` when it is
    built, before any model is loaded; so does an unknown name given to `from_dict`.
    """

    # Which channels
    target_modules: str | tuple[str, ...] = _option(
        "all-linear",
        'projections whose outputs are channels: "all-linear", a list of module names '
        "(whole name or ending), or a regular expression on the whole name; never the LM head",
    )
    layers: tuple[int, ...] | None = _option(
        None, "layers whose projections count; none means all", at_least=0
    )

    # Which examples and tokens
    score_tokens: Literal["all", "answer"] = _option(
        "all",
        "tokens over which a channel's score is summed: all (non-padding) or only the positions "
        "that predict an answer token",
    )
    max_length: int = _option(
        256, "longest example in tokens; a longer one keeps its answer and the prompt's end", 2
    )
    retain_examples: int = _option(24, "retain examples scored per request", 1)
    guard_examples: int = _option(64, "examples of the guard, fixed for the life of a state", 1)

    # Current risk: eq. current_pathway_risk
    forget_weight: float = _option(1.0, "weight of the standardised forget score", 0)
    retain_weight: float = _option(1.0, "weight of the standardised retain score", 0)
    risk_margin: float = _option(1.0, "margin that the contrast must exceed")

    # Trajectory: eqs. risk_ema to trajectory_priority
    risk_decay: float = _option(0.7, "memory of the risk level", 0, 1)
    variance_decay: float = _option(0.7, "memory of the risk's variance", 0, 1)
    hit_decay: float = _option(0.7, "memory of high-risk occurrences", 0, 1)
    hit_weight: float = _option(1.0, "how much repeated occurrences raise the priority", 0)
    hit_quantile: float = _option(
        0.9, "a hit is a risk above this quantile of the request's positive risks", 0, 1
    )

    # Suppression
    step: Literal["select", "fisher"] = _option(
        "fisher",
        "how a request moves the mask: select (the paper's: the channels of highest priority are "
        "scaled down) or fisher (many channels a little, by forget gradient over retain Fisher)",
    )
    budget: int = _option(2048, "most channels that one step may suppress", 0)
    suppress_strength: float = _option(
        1.0,
        "select: share taken off a suppressed channel; fisher: how far the strongest channel moves",
        0,
        1,
    )
    dormant_threshold: float = _option(0.1, "a channel at or below this is dormant", 0, 1)
    max_sparsity: float = _option(0.04, "largest share of channels that may be dormant", 0, 1)

    # Recovery
    current_risk_ceiling: float = _option(
        0.5, "a dormant channel may recover at a current risk up to this", 0
    )
    history_risk_ceiling: float = _option(0.5, "and at a previous priority up to this", 0)
    recovery_threshold: float = _option(0.0, "and when its recovery score is above this")
    retain_gain: float = _option(1.0, "weight of the retain score in the recovery score", 0)
    current_penalty: float = _option(1.0, "weight of the current risk in it", 0)
    history_penalty: float = _option(1.0, "weight of the previous priority in it", 0)
    hit_penalty: float = _option(1.0, "weight of the previous hits in it", 0)
    recover_strength: float = _option(0.5, "share of the missing mask that recovery restores", 0, 1)

    # Guard
    guard_relative: float = _option(0.05, "largest relative rise of the guard loss per request", 0)
    guard_absolute: float = _option(0.0, "largest absolute rise of the guard loss per request", 0)

    # Ablations
    use_recovery: bool = _option(True, "recover dormant channels")
    use_guard: bool = _option(True, "reject a request that breaks the guard")
    use_history: bool = _option(True, "screen recovery by the previous priority and hits")

    # Beyond the paper
    signed_scores: bool = _option(
        False,
        "score a channel by how much suppressing it raises the forget loss; "
        "the paper takes the absolute value",
    )
    backtracks: int = _option(
        4, "smaller steps tried, inside the same commit, before a request is rejected", 0, 50
    )
    backtrack_factor: float = _option(
        0.4,
        "each smaller step is at most this share of the one before; less where the guard loss "
        "was so far over its limit that less is needed",
        0.01,
        0.99,
    )
    steps: int = _option(2, "fisher: small scored steps per request", 1, 100)
    step_guard: float = _option(
        0.015, "fisher: largest relative rise of the guard loss per step", 0
    )
    forget_ceiling: float = _option(
        6.0, "fisher: an example whose loss reaches this many nats counts as forgotten", 0.1
    )
    fisher_decay: float = _option(0.9, "fisher: memory of the retain Fisher over requests", 0, 1)
    fisher_damping: float = _option(
        0.3, "fisher: share of the mean Fisher added to each channel's", 1e-6
    )

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for item in dataclasses.fields(self):
            value = _coerce(item.name, getattr(self, item.name), hints[item.name])
            _check_range(item.name, value, item.metadata["min"], item.metadata["max"])
            object.__setattr__(self, item.name, value)
        if self.target_modules in ("", ()):
            raise InputError("target_modules is empty; name at least one projection")
        if isinstance(self.target_modules, str) and self.target_modules != "all-linear":
            try:
                re.compile(self.target_modules)
            except re.error as error:
                raise InputError(
                    f"target_modules is not a valid regular expression: {error}"
                ) from None

    @classmethod
    def paper(cls, **changes: Any) -> TFRConfig:
        """Return the paper's method and nothing else, with the named fields changed."""
        # Written out, so that a better default never moves the paper's numbers.
        settings: dict[str, Any] = {
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
            "steps": 1,
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
        return cls.from_dict(settings | changes)

    @classmethod
    def preset(cls, name: str) -> TFRConfig:
        """Return the config called `default` or `paper`."""
        if name == "default":
            return cls()
        if name == "paper":
            return cls.paper()
        raise InputError(f"unknown preset {name!r}; choose default or paper")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TFRConfig:
        """Build a config from plain values, for example from JSON; unknown names are errors."""
        known = {item.name for item in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise InputError(
                f"unknown setting {unknown[0]!r}; the settings are: {', '.join(sorted(known))}"
            )
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain JSON values."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in dataclasses.asdict(self).items()
        }

    def with_overrides(self, overrides: Iterable[str]) -> TFRConfig:
        """Return a copy changed by `field=value` texts (`true`/`false`, commas for lists)."""
        hints = typing.get_type_hints(type(self))
        values = self.to_dict()
        for override in overrides:
            name, equals, text = override.partition("=")
            name = name.strip()
            if not equals:
                raise InputError(f"--set takes field=value, not {override!r}")
            values[name] = _parse(name, text.strip(), hints[name]) if name in hints else text
        return type(self).from_dict(values)


def _alternatives(hint: Any) -> tuple[Any, ...]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return typing.get_args(hint)
    return (hint,)


def _is_tuple(hint: Any) -> bool:
    return typing.get_origin(hint) is tuple


def _coerce(name: str, value: Any, hint: Any) -> Any:
    """Return `value` as the field's type, or raise; an int is a fine float, a list a fine tuple."""
    for option in _alternatives(hint):
        if option is type(None) and value is None:
            return None
        if typing.get_origin(option) is Literal:
            if value in typing.get_args(option):
                return value
            choices = " or ".join(typing.get_args(option))
            raise InputError(f"{name} must be {choices}, not {value!r}")
        if _is_tuple(option) and isinstance(value, (list, tuple)):
            element = typing.get_args(option)[0]
            return tuple(_coerce(f"{name}[{i}]", part, element) for i, part in enumerate(value))
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if option is float and is_number:
            return float(value)
        if option in (bool, str) and isinstance(value, option):
            return value
        if option is int and is_number and float(value).is_integer():
            return int(value)
    raise InputError(f"{name} must be {_describe(hint)}, not {value!r}")


def _describe(hint: Any) -> str:
    words = {float: "a number", int: "a whole number", bool: "true or false", str: "text"}
    words[type(None)] = "none"
    parts = []
    for option in _alternatives(hint):
        if _is_tuple(option):
            parts.append(f"a list of {words[typing.get_args(option)[0]].removeprefix('a ')}s")
        else:
            parts.append(words[option])
    return " or ".join(parts)


def _check_range(name: str, value: Any, low: float | None, high: float | None) -> None:
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, (str, bool)) or number is None:
            continue
        if not math.isfinite(number):
            raise InputError(f"{name} must be a finite number, not {number}")
        if (low is not None and number < low) or (high is not None and number > high):
            bounds = f"at least {low}" if high is None else f"between {low} and {high}"
            raise InputError(f"{name} must be {bounds}, not {number}")


def _parse(name: str, text: str, hint: Any) -> Any:
    """Read a command-line text as the field's type."""
    options = _alternatives(hint)
    if type(None) in options and text.lower() in ("none", ""):
        return None
    if bool in options:
        if text.lower() not in ("true", "false"):
            raise InputError(f"{name} must be true or false, not {text!r}")
        return text.lower() == "true"
    for option in options:
        if _is_tuple(option):
            parts = [part.strip() for part in text.split(",") if part.strip()]
            if typing.get_args(option)[0] is int:
                return [_number(name, part, int) for part in parts]
            # A single plain name means a list of one; anything else is a regular expression.
            return parts if "," in text or re.fullmatch(r"[\w.]+", text) else text
    if float in options or int in options:
        return _number(name, text, float if float in options else int)
    return text


def _number(name: str, text: str, kind: type[int] | type[float]) -> int | float:
    try:
        return kind(text)
    except ValueError:
        raise InputError(f"{name} must be {_describe(kind)}, not {text!r}") from None
