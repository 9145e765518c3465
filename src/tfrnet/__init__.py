"""Continual unlearning for language models.

The public names are loaded when first used, so that `import tfrnet` stays instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tfrnet.core import __version__

_HOMES = {
    "TFRConfig": "tfrnet.methods.tfr.config",
    "InputError": "tfrnet.core.errors",
    "StateError": "tfrnet.core.errors",
    "TfrnetError": "tfrnet.core.errors",
    "Outcome": "tfrnet.core.outcome",
    "apply_state": "tfrnet.method_state",
    "find_config": "tfrnet.method",
    "method_names": "tfrnet.method",
    "Example": "tfrnet.data.examples",
    "Request": "tfrnet.data.requests",
    "read_requests": "tfrnet.data.requests",
    "read_examples": "tfrnet.data.requests",
    "load_model": "tfrnet.models.load",
    "TFRNet": "tfrnet.pretrained",
    "Session": "tfrnet.session",
}

__all__ = [
    "Example",
    "InputError",
    "Outcome",
    "Request",
    "Session",
    "StateError",
    "TFRConfig",
    "TFRNet",
    "TfrnetError",
    "__version__",
    "apply_state",
    "find_config",
    "load_model",
    "method_names",
    "read_examples",
    "read_requests",
]

if TYPE_CHECKING:
    from tfrnet.core.errors import InputError, StateError, TfrnetError
    from tfrnet.core.outcome import Outcome
    from tfrnet.data.examples import Example
    from tfrnet.data.requests import Request, read_examples, read_requests
    from tfrnet.method import find_config, method_names
    from tfrnet.method_state import apply_state
    from tfrnet.methods.tfr.config import TFRConfig
    from tfrnet.models.load import load_model
    from tfrnet.pretrained import TFRNet
    from tfrnet.session import Session


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tfrnet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
