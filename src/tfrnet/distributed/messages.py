"""Messages of a team's leader to the other processes, which read and write no files themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tfrnet.audit.observer import Origin
from tfrnet.data.examples import Example
from tfrnet.data.requests import Request
from tfrnet.models.passes import Passes


@dataclass(frozen=True)
class Load:
    """Load this model."""

    model: str
    dtype: str
    trust_remote_code: bool


@dataclass(frozen=True)
class Begin:
    """Apply this method to the model."""

    method: str
    config: dict[str, Any]
    retain: Sequence[Example]
    guard: Sequence[Example]
    reference: Sequence[Example]
    holdout: Sequence[Example]
    audits: bool
    seed: int
    passes: Passes


@dataclass(frozen=True)
class Restore:
    """Make this the current state."""

    tensors: Mapping[str, torch.Tensor]
    requests_seen: int
    origin: Origin


@dataclass(frozen=True)
class Propose:
    """Compute this request together."""

    request: Request


@dataclass(frozen=True)
class Adopt:
    """Adopt the result of the request, which is now on disk."""


@dataclass(frozen=True)
class End:
    """Restore the original model and stop."""
