"""Settings of a method: a dataclass whose fields carry their help text and range."""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from tfrnet.core.errors import InputError

if TYPE_CHECKING:
    from tfrnet.core.arrays import Arrays


def option(
    default: Any,
    text: str,
    at_least: float | None = None,
    at_most: float | None = None,
    when: Mapping[str, tuple[Any, ...]] | None = None,
    before: Any = dataclasses.MISSING,
    *,
    fixed: bool = True,
) -> Any:
    """Return a field of a `Settings` class with its help text and range.

    `when` names the values that other fields must have for this one to have an effect. `before` is
    the value of a setting in states and results that are older than it. One that is not `fixed` may
    be changed in the life of a state.
    """
    metadata = {"help": text, "min": at_least, "max": at_most, "when": when or {}}
    metadata |= {"before": before, "fixed": fixed}
    return field(default=default, metadata=metadata)


def same_as(owner: type[Settings], name: str, default: Any = dataclasses.MISSING) -> Any:
    """Return a field of another class, perhaps with another default.

    Its place is where it is declared; an inherited field would stand before all others.
    """
    (item,) = (item for item in dataclasses.fields(owner) if item.name == name)
    same = item.default if default is dataclasses.MISSING else default
    return field(default=same, metadata=item.metadata)


@dataclass(frozen=True)
class Settings:
    """Immutable, validated settings.

    Raises `InputError` on construction for a value that is out of range, NaN, or without effect
    given the others, and in `from_dict` for an unknown name.

    A method's settings also say what can be said of the method without loading torch, so that
    commands that only look at a state answer at once.
    """

    # What the method does, in one line.
    about: ClassVar[str] = ""
    # Whether its states contain a mask over channels, the tensor `mask`; `dormant_threshold` is
    # then a setting, and outcomes name `top_channels`.
    has_mask: ClassVar[bool] = False
    # The values that other fields must have for the fields of this class to have an effect.
    acts_when: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    # The values that fields must have for reference examples to have an effect; None if they never
    # have one.
    reference_when: ClassVar[Mapping[str, tuple[Any, ...]] | None] = None

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for item in dataclasses.fields(self):
            value = _coerce(item.name, getattr(self, item.name), hints[item.name])
            _check_range(item.name, value, item.metadata["min"], item.metadata["max"])
            object.__setattr__(self, item.name, value)
        for item in dataclasses.fields(self):
            if getattr(self, item.name) != item.default:
                self._refuse_idle(item.name)

    @classmethod
    def preset(cls, name: str) -> Self:
        """Return the settings of a preset; `default` is the class's own defaults."""
        presets = cls.presets()
        if name not in presets:
            raise InputError(f"unknown preset {name!r}; choose from {', '.join(presets)}")
        return cls.from_dict(presets[name])

    @classmethod
    def presets(cls) -> dict[str, Mapping[str, Any]]:
        """Return what each preset changes, by its name."""
        return {"default": {}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build settings from plain values, for example from JSON; unknown names are errors."""
        known = {item.name for item in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise InputError(
                f"unknown setting {unknown[0]!r}; choose from {', '.join(sorted(known))}"
            )
        return cls(**values)

    @classmethod
    def from_record(cls, values: Mapping[str, Any]) -> Self:
        """Build settings from an old record, which may hold settings without effect.

        Those take their defaults, which changes no result. Settings newer than the record have
        the value of before.
        """
        return cls._from_acting(cls._before() | dict(values))

    @classmethod
    def _before(cls) -> dict[str, Any]:
        """Return the values of before of the settings that are newer than some records."""
        found = {item.name: item.metadata["before"] for item in dataclasses.fields(cls)}
        return {name: v for name, v in found.items() if v is not dataclasses.MISSING}

    @classmethod
    def _from_acting(cls, values: Mapping[str, Any]) -> Self:
        """Build settings from values of which some may have no effect."""
        known = {item.name: item for item in dataclasses.fields(cls)}
        chosen = {name: known[name].default for name in known} | dict(values)
        acting = {
            name: value
            for name, value in values.items()
            if name not in known or not _missing(cls._conditions(known[name]), chosen)
        }
        return cls.from_dict(acting)

    @classmethod
    def state_problem(cls, arrays: Arrays, layout: list[list[Any]]) -> str:
        """Return what is wrong with the tensors of a state, or nothing."""
        from tfrnet.core.arrays import first_not_finite

        name = first_not_finite(arrays)
        return f"{name} holds values that are not finite" if name else ""

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain JSON values."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in dataclasses.asdict(self).items()
        }

    @classmethod
    def changeable(cls) -> set[str]:
        """Return the settings that may be changed in the life of a state."""
        return {item.name for item in dataclasses.fields(cls) if not item.metadata["fixed"]}

    def filed_under(self) -> dict[str, Any]:
        """Return the settings that finished results are identified by.

        They may include settings without effect. Removing one would make all results stale. A
        newer setting at its value of before is left out, as in results of before, and so is one
        that may be changed in the life of a state: it affects no result.
        """
        before, changeable = self._before(), self.changeable()
        return {
            name: value
            for name, value in self.to_dict().items()
            if name not in changeable and (name not in before or value != before[name])
        }

    def effective(self) -> dict[str, Any]:
        """Return the settings that have an effect, given the others."""
        without = self.without_effect()
        return {name: value for name, value in self.to_dict().items() if name not in without}

    def without_effect(self) -> dict[str, str]:
        """Return the settings without effect, each with the values that it would need."""
        values = vars(self)
        needs = {f.name: _missing(self._conditions(f), values) for f in dataclasses.fields(self)}
        return {name: missing for name, missing in needs.items() if missing}

    def with_overrides(self, overrides: Iterable[str]) -> Self:
        """Return a copy changed by `field=value` texts (`true`/`false`, commas for lists)."""
        hints = typing.get_type_hints(type(self))
        values, named = self.to_dict(), []
        for override in overrides:
            name, equals, text = override.partition("=")
            name = name.strip()
            if not equals:
                raise InputError(f"--set takes field=value, not {override!r}")
            values[name] = _parse(name, text.strip(), hints[name]) if name in hints else text
            named.append(name)
        # A setting that the overrides leave without effect takes its default.
        defaults = {item.name: item.default for item in dataclasses.fields(self)}
        kept = {name: v for name, v in values.items() if name in named or v != defaults[name]}
        changed = type(self)._from_acting(kept) if named else self
        for name in named:
            changed._refuse_idle(name)
        return changed

    def refuse_reference(self) -> None:
        """Raise if reference examples have no effect, given these settings."""
        if self.reference_when is None:
            raise InputError("reference examples have no effect with this method")
        if missing := _missing(self.reference_when, vars(self)):
            raise InputError(f"reference examples have no effect here; they need {missing}")

    @classmethod
    def _conditions(cls, item: dataclasses.Field[Any]) -> Mapping[str, tuple[Any, ...]]:
        """Return the conditions for a field to have an effect: its own and its class's."""
        owner = next(
            c for c in reversed(cls.__mro__) if item.name in vars(c).get("__annotations__", {})
        )
        return {**vars(owner).get("acts_when", {}), **item.metadata["when"]}

    def _refuse_idle(self, name: str) -> None:
        """Raise if a field has no effect, given the others."""
        (item,) = (item for item in dataclasses.fields(self) if item.name == name)
        if missing := _missing(self._conditions(item), vars(self)):
            raise InputError(f"{name} has no effect here; it needs {missing}")


def _missing(conditions: Mapping[str, tuple[Any, ...]], values: Mapping[str, Any]) -> str:
    """Return which of the conditions do not hold, in words."""
    return " and ".join(
        f"{name}={' or '.join(map(str, wanted))}"
        for name, wanted in conditions.items()
        if values[name] not in wanted
    )


def _alternatives(hint: Any) -> tuple[Any, ...]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return typing.get_args(hint)
    return (hint,)


# Whole numbers of more bits cannot be floats.
_MOST_BITS = 1023


def _is_tuple(hint: Any) -> bool:
    return typing.get_origin(hint) is tuple


def _coerce(name: str, value: Any, hint: Any) -> Any:
    """Return `value` as the field's type, or raise. An int may be a float, a list a tuple."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise InputError(f"{name} is too large a number")
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
    """Convert a command-line text to the field's type."""
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
            # Plain names are a list; anything else is a regular expression, which may have commas.
            return parts if all(re.fullmatch(r"[\w.]+", part) for part in parts) else text
    if float in options or int in options:
        return _number(name, text, float if float in options else int)
    return text


def _number(name: str, text: str, kind: type[int] | type[float]) -> int | float:
    try:
        return kind(text)
    except ValueError:
        raise InputError(f"{name} must be {_describe(kind)}, not {text!r}") from None
