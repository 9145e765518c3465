"""A service for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serve.running import Running, primary


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, tokenizer) -> Iterator[Running]:
    """One service for many tests: each sends requests of its own."""
    with primary(tmp_path_factory.mktemp("shared") / "state", tokenizer) as running:
        yield running
