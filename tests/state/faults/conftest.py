"""Fixtures of the tests that strike."""

from __future__ import annotations

import os

import pytest
import torch


@pytest.fixture(autouse=True)
def _quick(_two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # No power is cut here for real, so that the order of the syncs counts and not their effect.
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    torch.set_num_threads(1)
