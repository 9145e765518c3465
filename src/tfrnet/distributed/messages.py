"""What the leader of a team tells the others. They read no data and write nothing themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

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
    """Put this method on the model."""

    method: str
    config: dict[str, Any]
    retain: Sequence[Example]
    guard: Sequence[Example]
    seed: int
    passes: Passes


@dataclass(frozen=True)
class Restore:
    """Make this the current state."""

    tensors: Mapping[str, torch.Tensor]
    requests_seen: int


@dataclass(frozen=True)
class Propose:
    """Work out this request, together."""

    request: Request


@dataclass(frozen=True)
class Adopt:
    """The request is on disk: take its result over."""


@dataclass(frozen=True)
class End:
    """Leave the model as it was."""
