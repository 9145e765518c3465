"""The protocol that every unlearning method follows, and the registry that finds it by name.

A method is one module: `tfrnet.baselines.NAME` (with _ for -), or TFR-Net's own. The module has a
`METHOD`. Nothing else needs to know of a new method.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from tfrnet.errors import InputError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from tfrnet.data.examples import Encoded, Example
    from tfrnet.data.requests import Request
    from tfrnet.models.passes import Passes
    from tfrnet.outcome import Outcome
    from tfrnet.settings import Settings
    from tfrnet.state.tensors import State

Report = Callable[[str], None]
S = TypeVar("S", bound="State")
_TFR = "tfr"


@dataclass(frozen=True)
class Proposal(Generic[S]):
    """What a request would do: the state to commit and its record."""

    state: S
    outcome: Outcome


class Effect(Protocol):
    """How a method's states act on a live model, until `detach`."""

    @property
    def model(self) -> PreTrainedModel:
        """The model acted on."""

    def show(self, state: State) -> None:
        """Let the model act as in a state."""

    def layout(self) -> list[list[Any]]:
        """Return what a state's tensors belong to in the model: names and sizes."""

    def folded(self) -> dict[str, torch.Tensor]:
        """Return the weights that an ordinary model needs to act like this one."""

    def detach(self) -> None:
        """Leave the model as it was before."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


class Unlearner(Protocol[S]):
    """A method at work on one model, in memory. `tfrnet.Session` adds the state on disk.

    A request either becomes the new state as a whole or leaves everything as it was. `forget` is
    `propose`, then `adopt`; whoever keeps states on disk commits in between.
    """

    requests_seen: int

    @property
    def effect(self) -> Effect:
        """How its state acts on the model."""

    @property
    def config(self) -> Settings:
        """The method's settings."""

    @property
    def seed(self) -> int:
        """The seed of all samples."""

    @property
    def batch_size(self) -> int:
        """Examples in one forward pass."""

    @property
    def passes(self) -> Passes:
        """How examples are cut into passes through the model."""

    @property
    def retain(self) -> Sequence[Example]:
        """The retain data."""

    @property
    def guard(self) -> Sequence[Example]:
        """The examples of the guard."""

    @property
    def state(self) -> S:
        """The current state."""

    @property
    def model(self) -> PreTrainedModel:
        """The model at work on."""

    @property
    def method(self) -> str:
        """The name of the method."""

    def prepare(self, requests: Sequence[Request]) -> list[list[Encoded]]:
        """Return the requests' tokens, or raise if one cannot be applied for what it holds."""

    def forget(
        self,
        request: Request,
        retain: Sequence[Example] | None = None,
        report: Report | None = None,
    ) -> Outcome:
        """Apply one request, with other retain data from now on if some is given."""

    def propose(self, request: Request, report: Report | None = None) -> Proposal[S]:
        """Work out what a request would do, leaving state and model as they are."""

    def adopt(self, proposal: Proposal[S]) -> None:
        """Take over the result of a request, accepted or not."""

    def snapshot(self) -> S:
        """Return the current state; it never changes afterwards."""

    def restore(self, state: S) -> None:
        """Make a state the current one, bit for bit."""

    def save(self, path: Path) -> None:
        """Write the current state to a safetensors file."""

    def load(self, path: Path) -> None:
        """Make the state in a file the current one."""

    def layout(self) -> list[list[Any]]:
        """Return what the state's tensors belong to in the model: names and sizes."""

    def detach(self) -> None:
        """Leave the model as it was before."""


@dataclass(frozen=True)
class Method:
    """How a method is built, and how its states are read and put on a model without training."""

    name: str
    about: str
    config: type[Settings]
    unlearner: Callable[..., Unlearner[Any]]
    read_state: Callable[[Mapping[str, torch.Tensor]], Any]
    attach: Callable[[PreTrainedModel, Any], Effect]


def method_names() -> list[str]:
    """Return the names of all methods, without importing them."""
    folder = Path(__file__).parent / "baselines"
    found = [module.name.replace("_", "-") for module in pkgutil.iter_modules([str(folder)])]
    return [_TFR, *sorted(found)]


def find_method(name: str) -> Method:
    """Return a method by its name."""
    if name not in method_names():
        raise InputError(f"unknown method {name!r}; the methods are {', '.join(method_names())}")
    home = "tfrnet.tfr.method" if name == _TFR else f"tfrnet.baselines.{name.replace('-', '_')}"
    method: Method = import_module(home).METHOD
    return method
