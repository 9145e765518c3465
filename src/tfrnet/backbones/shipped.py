"""The backbones that come with the package: LoRA adapters on the default model."""

from __future__ import annotations

from pathlib import Path

ADAPTERS = Path(__file__).parent / "adapters"
SHIPPED = ("smollm2-tasks", "smollm2-tofu-full", "smollm2-tofu-retain90")


def find_backbone(name: str) -> Path | None:
    """Return the folder of a shipped adapter, or None if the name is no such adapter's."""
    return ADAPTERS / name if name in SHIPPED else None
