"""Continual unlearning for language models.

The public names are loaded when first used, so that `import tfrnet` stays instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "TFRConfig": "tfrnet.config",
    "InputError": "tfrnet.errors",
    "StateError": "tfrnet.errors",
    "TfrnetError": "tfrnet.errors",
    "Outcome": "tfrnet.outcome",
    "apply_state": "tfrnet.state.apply",
    "Example": "tfrnet.data.examples",
    "Request": "tfrnet.data.requests",
    "read_requests": "tfrnet.data.requests",
    "read_examples": "tfrnet.data.requests",
    "load_model": "tfrnet.models.load",
    "TFRNet": "tfrnet.tfr.controller",
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
    "load_model",
    "read_examples",
    "read_requests",
]

if TYPE_CHECKING:
    from tfrnet.config import TFRConfig
    from tfrnet.data.examples import Example
    from tfrnet.data.requests import Request, read_examples, read_requests
    from tfrnet.errors import InputError, StateError, TfrnetError
    from tfrnet.models.load import load_model
    from tfrnet.outcome import Outcome
    from tfrnet.session import Session
    from tfrnet.state.apply import apply_state
    from tfrnet.tfr.controller import TFRNet


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tfrnet' has no attribute {name!r}")
