"""The methods by name: modules of `tfrnet.methods` and entry points of that group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfrnet.core.registry import Registry

if TYPE_CHECKING:
    from tfrnet.core.settings import Settings
    from tfrnet.unlearner import Unlearner


def _problem(method: Any) -> str:
    from tfrnet.unlearner import method_problem  # with torch, which listing names does without

    return method_problem(method)


METHODS = Registry("method", "tfrnet.methods", "tfrnet.methods", "METHOD", "method", _problem)
DEFAULT = "tfr"


def method_names() -> list[str]:
    """Return the names of all methods, the default first, without importing them."""
    return sorted(METHODS.names(), key=lambda name: (name != DEFAULT, name))


def find_method(name: str) -> type[Unlearner[Any]]:
    """Return a method by its name."""
    method: type[Unlearner[Any]] = METHODS.find(name)
    return method


def find_config(name: str) -> type[Settings]:
    """Return the class of a method's settings; for our own methods without importing torch."""
    found: type[Settings] | None = METHODS.find_part(name, "config")
    return find_method(name).config_class if found is None else found
