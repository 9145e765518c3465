"""What is compared: a method with its settings, under the name that tables give it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfrnet.core.errors import InputError
from tfrnet.core.settings import Settings
from tfrnet.method import METHODS, find_method
from tfrnet_bench.constants import UNTOUCHED

TUNED, PUBLISHED, PAPER = "tuned", "published", "paper"


@dataclass(frozen=True)
class Variant:
    """A method, a preset of its settings, and what is changed in it."""

    label: str
    method: str
    preset: str = "default"
    overrides: tuple[str, ...] = ()

    @property
    def acts(self) -> bool:
        """Whether the variant changes the model."""
        return self.method != UNTOUCHED

    def settings(self) -> Settings | None:
        """Return the settings; a model that is left alone has none."""
        if not self.acts:
            return None
        return (
            find_method(self.method).config_class.preset(self.preset).with_overrides(self.overrides)
        )


def all_methods() -> tuple[str, ...]:
    """Return the names of all methods that can be loaded."""
    return tuple(METHODS.all())


def with_preset(method: str, preset: str) -> Variant:
    """Return a method with a preset. One never tuned, or published, runs with its defaults."""
    presets = find_method(method).config_class.presets()
    if preset in (TUNED, PUBLISHED) and preset not in presets:
        preset = "default"
    if preset not in presets:
        raise InputError(f"{method} has no preset {preset!r}; it has {', '.join(presets)}")
    return Variant(method, method, preset)


def methods_with_controls(methods: Sequence[str], preset: str) -> list[Variant]:
    """Return the untouched model, the methods, and the paper's own form of any that has one."""
    return [
        Variant(UNTOUCHED, UNTOUCHED),
        *(with_preset(method, preset) for method in methods),
        *(
            Variant(f"{method}-{PAPER}", method, PAPER)
            for method in methods
            if PAPER in find_method(method).config_class.presets()
        ),
    ]


def ablations(preset: str) -> list[Variant]:
    """Return TFR-Net whole and without one of its parts; one switch is all that differs."""
    return [Variant("tfr", "tfr", preset)] + [
        Variant(f"tfr-no-{part}", "tfr", preset, (f"use_{part}=false",))
        for part in ("recovery", "retain", "history", "guard")
    ]


def structures(preset: str) -> list[Variant]:
    """Return TFR-Net with and without recovery, and a control whose mask never changes.

    Only the control shows how the relevant channels change without any suppression.
    """
    return [
        Variant("tfr", "tfr", preset),
        Variant("tfr-no-recovery", "tfr", preset, ("use_recovery=false",)),
        Variant("tfr-no-suppression", "tfr", preset, ("budget=0",)),
    ]
