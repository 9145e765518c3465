"""Fixtures of the tests of states."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.state.made_up import (
    make_state,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed state after three accepted requests."""
    return make_state(tmp_path / "state")
