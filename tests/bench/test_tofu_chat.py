"""The page about TOFU in the chat form holds what its cells say."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest

from benchmarks import tofu_chat_table as tables
from benchmarks.default_table import read_cells
from tfrnet.core.guard import guard_limit
from tfrnet.methods.tfr.config import TFRConfig

PAGE = (Path(__file__).parents[2] / "benchmarks" / "notebook" / "tofu-chat.md").read_text()
# Of the tuning seed: with a fall and sharpness 0, without both, without the fall.
ARMS = ("thorough, sharpness 0, fall 0.1", "thorough", "thorough, sharpness 0")
UNTOUCHED, ORACLE = (tables.rows_of(name) for name in (tables.UNTOUCHED, tables.ORACLE))
DEFAULT, THOROUGH = (tables.rows_of(name) for name in ("default", "thorough"))


def test_the_tables_are_those_of_the_cells() -> None:
    assert tables.sets_table() in PAGE
    assert tables.oracle_table() in PAGE
    assert tables.requests_table() in PAGE
    assert tables.two_authors_table() in PAGE
    assert tables.tuning_table() in PAGE


def test_the_cells_are_whole_streams_in_the_chat_form_on_reporting_seeds() -> None:
    for rows, preset in ((DEFAULT, "default"), (THOROUGH, "thorough")):
        assert [row["seed"] for row in rows] == [3, 4, 5]
        for row in rows:
            assert row["requests"] == 20
            assert row["sizes"]["template"] == "chat"
            assert row["settings"] == ({} if preset == "default" else {"preset": preset})


def test_the_shares_of_what_is_kept_are_as_told() -> None:
    (untouched,) = UNTOUCHED
    known = untouched["sets"]["retain"]["probability"]
    told = []
    for rows in (THOROUGH, DEFAULT):
        told.append(round(100 * tables.of_set(rows, "retain", "probability") / known))
        told.append(round(100 * fmean(row["utility"] for row in rows) / untouched["utility"]))
    assert told == [90, 96, 65, 86]
    assert "keeps 90 % of the retain probability and 96 % of Model Utility" in PAGE
    assert "the default 65 and 86 %" in PAGE


def test_the_other_methods_are_whole_streams_and_keep_as_much_as_told() -> None:
    (untouched,) = UNTOUCHED
    found = {name: tables.rows_of(name) for name in tables.OTHERS}
    for name, rows in found.items():
        assert [(row["seed"], row["requests"], row["accepted"]) for row in rows] == [(3, 20, 20)]
        assert rows[0]["settings"] == {"method": name, "preset": "tuned"}
    (o3,) = found["o3"]
    kept = o3["sets"]["retain"]["probability"] / untouched["sets"]["retain"]["probability"]
    utility = o3["utility"] / untouched["utility"]
    assert f"it keeps {100 * kept:.0f} % of" in PAGE
    assert f"and {100 * utility:.0f} % of Model Utility" in PAGE
    forget = o3["sets"]["forget"]
    assert f"forgets less ({forget['probability']:.2f})" in PAGE
    assert f"(ROUGE-L recall {forget['rouge']:.2f})" in PAGE
    (simnpo,) = found["simnpo"]
    assert max(tables.quality(rows[0]) for rows in found.values()) == tables.quality(simnpo)
    assert f"Forget Quality ({tables.quality(simnpo):.2f}; above 0.05" in PAGE
    kept, default = (tables.of_set(rows, "retain", "probability") for rows in ([simnpo], DEFAULT))
    assert 0 < kept - default < 0.1
    nats = fmean(outcome["forget_loss_after"] for outcome in simnpo["outcomes"])
    oracle = fmean(ORACLE[0]["forget_loss_end"])
    assert 2.8 < nats / oracle < 3.2
    assert f"{fmean(simnpo['forget_loss_end']) / oracle:.1f} times in the end" in PAGE
    for name in ("npo", "graddiff"):
        assert found[name][0]["utility"] < 0.2


def test_a_fall_lets_less_come_back_on_a_tuning_seed() -> None:
    back = {}
    for row in read_cells(tables.TUNING):
        assert row["seed"] == 1000
        after = [outcome["forget_loss_after"] for outcome in row["outcomes"]]
        pairs = zip(after, row["forget_loss_end"], strict=True)
        back[row["candidate"]] = [before - end for before, end in pairs]
    told = ["{:.1f}, {:.1f} and {:.1f}".format(*map(abs, back[name][:3])) for name in ARMS]
    assert "{} nats; `thorough` alone {}, with sharpness 0 alone {}".format(*told) in PAGE
    assert max(back["default, sharpness 0, fall 0.1"][:2]) < 0


def test_neither_is_like_the_oracle() -> None:
    for row in (*DEFAULT, *THOROUGH):
        assert tables.leak(row) < -75
        assert tables.quality(row) < 1e-8
    assert tables.leak(ORACLE[0]) == 0
    assert tables.quality(ORACLE[0]) == 1


def test_a_retrained_model_finds_them_less_likely() -> None:
    losses = ORACLE[0]["forget_loss_end"]
    assert len(losses) == 20
    told = f"{fmean(losses):.1f} on average, {min(losses):.1f} to {max(losses):.1f} by author"
    assert f"A retrained model has {told}" in PAGE
    for row in (*DEFAULT, *THOROUGH):
        after = [outcome["forget_loss_after"] for outcome in row["outcomes"]]
        assert fmean(after) < fmean(losses)


def test_of_two_authors_the_default_leaves_most() -> None:
    known, never, default, simnpo, npo = read_cells(tables.FORGET01)
    assert [o["attempts"] for o in default["outcomes"]] == [12, 11]
    assert [o["reason"] for o in default["outcomes"]] == [
        f"{above} of 20 examples above their level" for above in (20, 19)
    ]
    limit = guard_limit(default["outcomes"][0]["guard_loss_before"], 0.05, 0.02)
    assert default["outcomes"][0]["guard_loss_after"] == pytest.approx(limit, abs=1e-3)
    lost = [
        1 - r["sets"]["retain"]["probability"] / known["sets"]["retain"]["probability"]
        for r in (default, simnpo, npo)
    ]
    assert lost == pytest.approx([0.04, 1 / 8, 0.22], abs=0.01)
    for row in (simnpo, npo):
        assert row["sets"]["forget"]["probability"] < never["sets"]["forget"]["probability"]
        assert tables.leak(row, tables.FORGET01) > 0


def test_earlier_authors_come_back_further() -> None:
    for row in (*DEFAULT, *THOROUGH):
        end = [fmean(row["forget_loss_end"][i : i + 5]) for i in range(0, 20, 5)]
        assert all(later > earlier for earlier, later in pairwise(end))
        assert 1.25 < end[0] < 1.65
        # More answers than the directions that are remembered of them.
        assert TFRConfig.preset(row["candidate"]).memory_rows == 160
        assert 20 * row["requests"] == 400
