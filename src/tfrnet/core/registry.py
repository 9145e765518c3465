"""Plugins: modules found by their place in a package, or by an entry point.

Methods, tasks, attacks, export formats and commands are found this way, ours and those of other
installed packages. Listing names imports none of them.
"""

from __future__ import annotations

import pkgutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from tfrnet.core.errors import InputError, TfrnetWarning


@dataclass(frozen=True)
class Registry:
    """All plugins of one kind, such as methods.

    Ours are the modules of `package`, or folders of it with a module `kind`.py; the plugin's name
    is the module's with - for _. Those of other packages are entry points of `group`. The plugin
    itself is the module's `attribute`. If plugins have a name of their own, in the attribute
    `named`, it must be the name they are found by. `problem` says what else is wrong with one.
    """

    kind: str
    package: str
    group: str
    attribute: str
    named: str = ""
    problem: Callable[[Any], str] = lambda found: ""

    def names(self) -> list[str]:
        """Return the names of all plugins, sorted."""
        return sorted({*self._own(), *_entry_points(self.group)})

    def find(self, name: str) -> Any:
        """Return a plugin by its name."""
        own, points = self._own(), _entry_points(self.group)
        if name not in own and name not in points:
            known = ", ".join(self.names())
            raise InputError(f"unknown {self.kind} {name!r}; choose from {known}")
        place = own.get(name) or f"package {_package(points[name])}"
        part = f"the {self.kind} {name!r} of {place}"
        unloaded = f"{part} cannot be loaded"
        try:
            found = self._module(own[name]) if name in own else points[name].load()
        except Exception as error:
            raise InputError(f"{unloaded}: {type(error).__name__}: {error}") from error
        if isinstance(found, ModuleType):
            if not hasattr(found, self.attribute):
                raise InputError(f"{unloaded}: {found.__name__} has no {self.attribute}")
            found = getattr(found, self.attribute)
        if problem := self.problem(found):
            raise InputError(f"{part} cannot be used: {problem}")
        if self.named and (calls_itself := getattr(found, self.named, None)) != name:
            raise InputError(f"{unloaded}: its {self.named} is {calls_itself!r}")
        return found

    def find_part(self, name: str, part: str) -> Any:
        """Return another attribute of one of our own plugins, from the module named like it.

        None if the plugin is a single file, or of another package.
        """
        place = self._own().get(name)
        spec = find_spec(place) if place else None
        is_folder = spec is not None and spec.submodule_search_locations is not None
        if not is_folder or find_spec(f"{place}.{part}") is None:
            return None
        return getattr(import_module(f"{place}.{part}"), part.upper())

    def all(self) -> dict[str, Any]:
        """Return all plugins by name. One that cannot be loaded is left out with a warning."""
        found = {}
        for name in self.names():
            try:
                found[name] = self.find(name)
            except InputError as error:
                warnings.warn(str(error), TfrnetWarning, stacklevel=2)
        return found

    def _own(self) -> dict[str, str]:
        spec = find_spec(self.package)
        places = (spec and spec.submodule_search_locations) or []  # None would mean anywhere
        modules = [module.name for module in pkgutil.iter_modules(places)]
        return {name.replace("_", "-"): f"{self.package}.{name}" for name in modules}

    def _module(self, name: str) -> ModuleType:
        module = import_module(name)
        is_folder = hasattr(module, "__path__") and not hasattr(module, self.attribute)
        return import_module(f"{name}.{self.kind}") if is_folder else module


@cache
def _installed() -> Any:
    return entry_points()  # slow: it searches all installed packages


def _entry_points(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in _installed().select(group=group)}


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value
