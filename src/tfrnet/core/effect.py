"""How a method's states act on a live model."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from tfrnet.core.tensors import State

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


class Effect(Protocol):
    """Applies a method's states to a live model, until `detach`."""

    # Whether it is a `masking.mask.ChannelMask`, or offers the same.
    has_mask: ClassVar[bool]

    @property
    def model(self) -> PreTrainedModel:
        """The model that the effect is on."""

    def show(self, state: State) -> None:
        """Apply a state to the model."""

    def layout(self) -> list[list[Any]]:
        """Return the parts of the model that a state's tensors belong to: names and sizes."""

    def folded(self) -> dict[str, torch.Tensor]:
        """Return the weights to replace for an ordinary model to behave like this one.

        Empty if the model's own weights already do. Raises `InputError` if no weights can.
        """

    def lifted(self) -> AbstractContextManager[None]:
        """Restore the original model within a `with` block.

        The effect's objects are set aside and put back, so nothing is rounded.
        """

    def detach(self) -> None:
        """Restore the original model."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...
