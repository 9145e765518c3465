"""How a method's states act on a live model."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from tfrnet.core.tensors import State

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


class Effect(Protocol):
    """What lets a live model act as in a state, until `detach`."""

    # Whether it is a mask over channels, with what `masking.mask.ChannelMask` offers.
    has_mask: ClassVar[bool]

    @property
    def model(self) -> PreTrainedModel:
        """The model acted on."""

    def show(self, state: State) -> None:
        """Let the model act as in a state."""

    def layout(self) -> list[list[Any]]:
        """Return what a state's tensors belong to in the model: names and sizes."""

    def folded(self) -> dict[str, torch.Tensor]:
        """Return the weights that an ordinary model needs to act like this one.

        They come in place of the model's own; none if the model's own do so already. Raise
        `InputError` with the reason where no weights can.
        """

    def lifted(self) -> AbstractContextManager[None]:
        """Give the model its own modules and weights back for a while.

        The effect's own objects are put aside and taken up again, so that nothing is rounded.
        """

    def detach(self) -> None:
        """Leave the model as it was before."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...
