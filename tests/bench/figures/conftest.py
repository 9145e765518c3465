"""The results that figures are drawn from."""

from __future__ import annotations

import pytest

from tests.bench.made_up import stream_result

STREAMS = ("openbookqa", "boolq")
VARIANTS = ("none", "ga", "tfr", "tfr-no-recovery", "tfr-no-suppression")


@pytest.fixture(scope="session")
def results():
    return [stream_result(v, s, seed) for v in VARIANTS for s in STREAMS for seed in (0, 1)]
