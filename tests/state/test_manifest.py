"""The manifest of a state: what a state was made with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfrnet.core.errors import StateError
from tfrnet.method_state import settings_of
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.state.manifest import Manifest


def manifest(config: dict) -> Manifest:
    return Manifest(model="m", fingerprint="f", config=config, channels=[], seed=0, guard=[])


def test_a_setting_newer_than_the_state_has_its_default():
    older = {name: value for name, value in TFRConfig().to_dict().items() if name != "use_retain"}
    made = settings_of(manifest(older))
    manifest(older).refuse_settings(Path("s"), made, TFRConfig(), 0)
    with pytest.raises(StateError, match="use_retain=True, not False"):
        manifest(older).refuse_settings(Path("s"), made, TFRConfig(use_retain=False), 0)


@pytest.mark.parametrize(
    "text",
    [
        '{"format": 1, "seed": 0, "seed": 1}',
        "[" * 100_000,
        '{"format": 1, "seed": ' + "9" * 400 + "}",
        '{"format": 1, "seed": NaN}',
    ],
    ids=["a key twice", "too deep", "too many digits", "no number"],
)
def test_a_manifest_that_readers_could_understand_differently_is_refused(text: str) -> None:
    with pytest.raises(StateError, match=r"m\.json is damaged"):
        Manifest.from_bytes(text.encode(), Path("m.json"))
