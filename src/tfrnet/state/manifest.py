"""What a state belongs to: format, base model, channel selection, config, seed and guard."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfrnet.core import strict_json
from tfrnet.core.errors import DamagedError, StateError
from tfrnet.core.settings import Settings

FORMAT = 1
_DIFFERENT = {
    "architecture": "it was a {known}, this one is a {value}",
    "layers": "it had {known} layers, this one has {value}",
    "weights": "the weights agree only when they are rounded to bfloat16",
    "tokenizer": "its tokenizer was another one",
}


@dataclass(frozen=True)
class Manifest:
    """Written once, when the state is made; a later opening must agree with it."""

    model: str
    fingerprint: str
    config: Mapping[str, Any]
    channels: list[list[Any]]
    seed: int
    guard: list[str]  # keyed digests of the guard examples, in their order
    method: str = "tfr"
    format: int = FORMAT
    # What else of the base model the state is bound to; states of before do not say.
    bound: Mapping[str, Any] | None = None
    # What the untouched model wrote to stand in for retain data, where there were none.
    own_text: Mapping[str, Any] | None = None

    def to_bytes(self) -> bytes:
        """Return the manifest as it stands in its file."""
        values = asdict(self)
        for name in ("bound", "own_text"):
            if values[name] is None:
                del values[name]
        return (json.dumps(values, indent=1, sort_keys=True) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes, path: Path) -> Manifest:
        """Read a manifest; a newer format is refused before anything else is looked at."""
        try:
            values = strict_json.parse(data)
            found = values["format"]
        except (ValueError, KeyError, TypeError):
            raise DamagedError(f"{path} is damaged: it is not a manifest") from None
        if found != FORMAT:
            raise StateError(
                f"{path} has state format {found}, and this version of tfrnet reads format "
                f"{FORMAT}; use a newer version of tfrnet"
            )
        try:
            return cls(**values)
        except TypeError:
            raise DamagedError(
                f"{path} is damaged: its fields are not those of a manifest"
            ) from None

    def dtype(self, wanted: str) -> str:
        """Return the dtype to load the base model in: the state's own where none is asked for."""
        return str(self.bound["dtype"]) if wanted == "auto" and self.bound else wanted

    def channel_count(self) -> int:
        """Return the number of channels in all."""
        return sum(width for _, width in self.channels)

    def refuse_base(self, folder: Path, fingerprint: str) -> None:
        """Raise if the state was made for another base model."""
        if fingerprint != self.fingerprint:
            raise StateError(
                f"state {folder} was made for another base model ({self.model}, fingerprint "
                f"{self.fingerprint[:12]}); this one has fingerprint {fingerprint[:12]}, so "
                "choose another --model or --state"
            )

    def refuse_unbound(self, folder: Path, found: Mapping[str, Any]) -> None:
        """Raise if the base model, or its tokenizer, is not the one that the state is bound to.

        `found` may leave out what is not at hand.
        """
        bound = self.bound or {}
        for name, value in found.items():
            known = bound.get(name, value)
            if known == value:
                continue
            if name == "dtype":
                raise StateError(
                    f"state {folder} was made in {known}, and the model is in {value}; "
                    f"load it with dtype {known}"
                )
            raise StateError(
                f"state {folder} was made for another base model ({self.model}): "
                f"{_DIFFERENT[name].format(known=known, value=value)}"
            )

    def refuse_layout(self, folder: Path, channels: list[list[Any]]) -> None:
        """Raise if the state was made for another selection of channels, or of tensors."""
        if channels != self.channels:
            count = sum(width for _, width in channels)
            raise StateError(
                f"state {folder} was made for another channel selection ({self.channel_count()} "
                f"channels in {len(self.channels)} projections, now {count} in {len(channels)}); "
                "use its target_modules and layers"
            )

    def refuse_method(self, folder: Path, method: str | None) -> None:
        """Raise if the state was made with another method than asked for."""
        if method not in (None, self.method):
            raise StateError(
                f"state {folder} was made with method {self.method}, not {method}; "
                "choose another --state for it"
            )

    def refuse_settings(
        self, folder: Path, made: Settings, config: Settings | None, seed: int | None
    ) -> None:
        """Raise if the state was made with other settings than asked for.

        `made` are the manifest's settings: a field newer than the state has its value of before. A
        setting that may be changed in the life of a state is not compared.
        """
        wanted = {} if config is None else config.to_dict()
        found = made.to_dict()
        changed = sorted(
            k for k, v in wanted.items() if found.get(k) != v and k not in made.changeable()
        )
        if changed:
            name = changed[0]
            selects = name in ("target_modules", "layers")
            selection = "another channel selection, " if selects else ""
            raise StateError(
                f"state {folder} was made with {selection}{name}={found.get(name)}, not "
                f"{wanted[name]}; its settings are fixed, so choose another --state"
            )
        if seed not in (None, self.seed):
            raise StateError(
                f"state {folder} was made with seed {self.seed}, not {seed}; its seed is fixed, so "
                "choose another --state"
            )
