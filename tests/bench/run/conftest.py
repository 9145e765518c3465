"""What all tests of this folder have in common."""

import pytest

from tfrnet.evaluation import bystanders


@pytest.fixture(autouse=True)
def _short_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a small cell's time would go into what a random model says."""
    monkeypatch.setattr(bystanders, "_NEW_TOKENS", 4)
