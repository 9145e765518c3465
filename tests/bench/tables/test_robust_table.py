"""The table of attacks."""

from __future__ import annotations

from tests.bench.made_up import run_of
from tests.bench.tables.few import failure, robust
from tfrnet_bench.tables.robust_table import robust_tables


def rows(results, failed=()):
    table = robust_tables(run_of(results, failed))[0]
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_attacks_are_listed_as_they_were_run():
    results = [robust("tfr", "boolq", seed) for seed in (0, 1, 2)]
    for seed, result in enumerate(results):
        result["robustness"]["attacks"][0] |= {"attacked": 20.0 + 2 * seed}
    found = rows(results)
    assert [(row["Attack"], row["Form"]) for row in found][:2] == [
        ("quantise", "int4-row"),
        ("quantise", "nf4"),
    ]
    assert found[0]["Attacked"] == "22.0 ± 5.0"
    assert found[0]["Plain"] == "20.0 ± 0.0"
    assert found[0]["Untouched, attacked"] == "94.0 ± 0.0"
    assert found[2]["Recovery"] == "0.27 ± 0.00"
    assert found[0]["n"] == "3"


def test_what_is_not_defined_or_failed_says_so():
    result = robust("tfr", "boolq", 0)
    result["robustness"]["attacks"][0] |= {"recovery": None, "untouched_attacked": None}
    found = rows([result], [failure("robust", "boolq", "ga", 0)])
    assert found[0] | {"Method": "GA", "Plain": "failed", "n": "0"} == found[0]
    assert found[1]["Recovery"] == found[1]["Untouched, attacked"] == "undefined"


def test_an_attack_that_one_seed_lacks_is_counted():
    results = [robust("tfr", "boolq", seed) for seed in (0, 1)]
    del results[1]["robustness"]["attacks"][0]
    assert rows(results)[0]["Plain"] == "20.0 [n = 1 of 2]"
