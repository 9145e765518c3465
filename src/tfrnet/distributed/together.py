"""Making sure that all processes of a team use the same model and software."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from tfrnet.core.versions import versions
from tfrnet.models.fingerprint import fingerprint

if TYPE_CHECKING:
    from tfrnet.core.team import Team
    from tfrnet.models.load import LoadedModel


def load_together(team: Team, load: Callable[[], LoadedModel]) -> LoadedModel:
    """Load a model in every process; raise in all if one fails or loads a different model."""
    with team.together():
        loaded = load()
        team.agree(_facts(team, loaded) if team.size > 1 else {})
    team.adapt(loaded.model)
    return loaded


def _facts(team: Team, loaded: LoadedModel) -> dict[str, str]:
    """Return what must be equal in all processes for equal results."""
    device = team.device
    on_gpu = device.type == "cuda"
    return {
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
        "the device": torch.cuda.get_device_name(device) if on_gpu else device.type,
        "the dtype": str(loaded.model.dtype),
        "the model's weights (fingerprint)": fingerprint(loaded.model)[:16],
        "the tokenizer (size)": str(len(loaded.tokenizer)),
    }
