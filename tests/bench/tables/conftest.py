"""A whole made-up run."""

from __future__ import annotations

import pytest

from tests.bench.made_up import write_run
from tfrnet_bench.results import read_run
from tfrnet_bench.tables import all_tables

VARIANTS = ("none", "ga", "tfr", "tfr-no-recovery")


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    return read_run(write_run(tmp_path_factory.mktemp("run"), seeds=1, variants=VARIANTS))


@pytest.fixture(scope="session")
def tables(run):
    return all_tables(run)
