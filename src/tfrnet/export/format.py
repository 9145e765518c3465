"""What a format is: a file of `formats/`, or an entry point of another package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tfrnet.core.effect import Effect
from tfrnet.core.errors import InputError
from tfrnet.export.origin import Origin

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from tfrnet.unlearner import Unlearner


@dataclass(frozen=True)
class Options:
    """What a user chooses within a format."""

    quant: str = "Q8_0"
    rank: int = 64


@dataclass(frozen=True)
class Job:
    """A live model that acts as in a state, and what is known of where it comes from."""

    effect: Effect
    tokenizer: PreTrainedTokenizerBase
    origin: Origin
    options: Options = Options()

    @property
    def base_path(self) -> str:
        """What transformers loads the untouched model from: a folder or a hub id."""
        return self.effect.model.name_or_path or self.origin.base_model


class Format(ABC):
    """One way to write a model. `write` fills a folder that is not there for others yet."""

    name: ClassVar[str]
    # In one line, for the help.
    about: ClassVar[str]
    # For the hub: the library that loads it, and what it is to the base model.
    library: ClassVar[str]
    relation: ClassVar[str]
    # Whether the untouched weights can be had from it, so that the forgetting can be taken off.
    removable: ClassVar[bool] = False
    # The fields of `Options` that it heeds.
    options: ClassVar[tuple[str, ...]] = ()

    def refuse(self, method: type[Unlearner[Any]], options: Options) -> None:
        """Raise, before a model is loaded, if a method's states cannot be written like this."""
        if not method.exportable:
            raise InputError(
                f"a state of {method.method} cannot be exported: {method.why_not_exportable}"
            )

    @abstractmethod
    def write(self, job: Job, folder: Path) -> float:
        """Write the model, load it again, and return how far its logits are from the live ones."""

    def facts(self, job: Job) -> dict[str, Any]:
        """Return what `tfrnet.json` says beyond the origin."""
        return {}

    @abstractmethod
    def usage(self, job: Job, folder: str) -> str:
        """Return how to load it, as Markdown; `folder` stands for where it lies."""
