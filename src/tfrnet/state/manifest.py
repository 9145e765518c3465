"""What a state belongs to: format, base model, channel selection, config, seed and guard."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfrnet.config import TFRConfig
from tfrnet.errors import InputError, StateError

FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    """Written once, when the state is made; a later opening must agree with it."""

    model: str
    fingerprint: str
    config: Mapping[str, Any]
    channels: list[list[Any]]
    seed: int
    guard: list[str]  # keyed digests of the guard examples, in their order
    format: int = FORMAT

    def to_bytes(self) -> bytes:
        """Return the manifest as it stands in its file."""
        return (json.dumps(asdict(self), indent=1, sort_keys=True) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes, path: Path) -> Manifest:
        """Read a manifest; a newer format is refused before anything else is looked at."""
        try:
            values = json.loads(data)
            found = values["format"]
        except (ValueError, KeyError, TypeError):
            raise StateError(f"{path} is damaged: it is not a manifest") from None
        if found != FORMAT:
            raise StateError(
                f"{path} has state format {found}, and this version of tfrnet reads format "
                f"{FORMAT}; use a newer version"
            )
        try:
            return cls(**values)
        except TypeError:
            raise StateError(f"{path} is damaged: its fields are not those of a manifest") from None

    def tfr_config(self) -> TFRConfig:
        """Return the config that the state was made with."""
        try:
            return TFRConfig.from_dict(self.config)
        except InputError as error:
            raise StateError(f"the manifest's config cannot be used: {error}") from None

    def channel_count(self) -> int:
        """Return the number of channels in all."""
        return sum(width for _, width in self.channels)

    def refuse_other(self, folder: Path, wanted: Manifest) -> None:
        """Raise if the state was made for something else, saying for what."""
        if wanted.fingerprint != self.fingerprint:
            raise StateError(
                f"state {folder} was made for another base model ({self.model}, fingerprint "
                f"{self.fingerprint[:12]}); this one is {wanted.model}, {wanted.fingerprint[:12]}"
            )
        if wanted.channels != self.channels:
            raise StateError(
                f"state {folder} was made for another channel selection ({self.channel_count()} "
                f"channels in {len(self.channels)} projections, now {wanted.channel_count()} in "
                f"{len(wanted.channels)}); use its target_modules and layers"
            )
        changed = sorted(k for k, v in wanted.config.items() if self.config.get(k) != v)
        if changed:
            name = changed[0]
            raise StateError(
                f"state {folder} was made with {name}={self.config.get(name)}, not "
                f"{wanted.config[name]}; its settings are fixed, start another state to change them"
            )
        if wanted.seed != self.seed:
            raise StateError(f"state {folder} was made with seed {self.seed}, not {wanted.seed}")
