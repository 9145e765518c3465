"""The limit on the total drift on the command line."""

from __future__ import annotations

from pathlib import Path

from tests.integration.commands import FAST, Files, Tfrnet


def test_status_says_how_much_is_used_up(tfrnet: Tfrnet, files: Files) -> None:
    shown = tfrnet("status", "--state", files.state)
    assert "\ntotal drift  guard loss " in shown.out
    assert "of drift_limit 3 used up" in shown.out
    drift = tfrnet("status", "--state", files.state, "--json").json["drift"]
    assert drift["limit"] == 3.0
    assert drift["used"] == max(0.0, (drift["ratio"] - 1) / 2)


def test_it_can_be_changed_in_the_life_of_a_state(tfrnet: Tfrnet, files: Files) -> None:
    options = [*files.opening(), "--set", "drift_limit=5"]
    assert tfrnet("forget", "--request", files.request, *options).code == 0
    history = tfrnet("history", "--state", files.state, "--json").json["entries"]
    assert history[-1]["drift_limit"] == 5.0


def test_an_impossible_limit_is_refused(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, no_model: None
) -> None:
    options = [*files.opening(tmp_path / "new"), *FAST, "--set", "drift_limit=0.5"]
    result = tfrnet("forget", "--request", files.request, *options)
    assert (result.code, result.error) == (2, "drift_limit must be at least 1, not 0.5")


def test_settings_explain_it(tfrnet: Tfrnet) -> None:
    shown = tfrnet("settings").out
    assert "drift_limit = 3.0\n    maximum guard loss over the whole stream" in shown
