"""The verdict of an audit in plain words, and its figures as the ledger holds them."""

from __future__ import annotations

import json

import pytest

from tfrnet.audit.change import Change
from tfrnet.audit.figures import Figures, Given, given_by_kind


def change(after: float, error: float = 0.001) -> Change:
    return Change(6, 1.0, 1.0, after, error)


def test_a_verdict() -> None:
    figures = Figures(
        {"own": Given(2, 2, 0), "question": Given(6, 5, 0), "chat": Given(4, 2, 1)},
        change(1.02, 0.1),
        {"english": change(1.001), "french": change(1.2), "code": change(1.2)},
    )
    assert figures.verdict == (
        "given in 9 of 12 wordings before, 1 after, still given: in a chat; "
        "nearest kept data unchanged within noise; French text and code worse by 20.0 %"
    )


@pytest.mark.parametrize(
    ("wordings", "words"),
    [
        ({}, "too short to be put into words of any kind"),
        ({"own": Given(3, 0, 0)}, "given in none of 3 wordings, even before"),
        (
            {"own": Given(3, 3, 0)},
            "given in 3 of 3 wordings before, none after, its own only, since its prompts are too "
            "short for others",
        ),
    ],
)
def test_what_can_be_said_of_few_wordings(wordings: dict[str, Given], words: str) -> None:
    assert Figures(wordings).verdict == words


def test_quiet_text_is_said_in_two_words() -> None:
    figures = Figures(general={"english": change(1.0), "french": change(1.05, 0.1)})
    assert figures.verdict_on_text == "general text unchanged"


def test_figures_come_back_from_the_ledger() -> None:
    figures = Figures({"own": Given(2, 1, 0)}, change(1.5), {"code": change(0.9)})
    assert Figures.from_dict(json.loads(json.dumps(figures.to_dict()))) == figures
    lost = figures.to_dict()
    lost["kept"]["loss_after"] = None  # it was not finite
    assert Figures.from_dict(lost).kept.words == "no longer finite"


def test_wordings_are_counted_by_kind() -> None:
    kinds = ["own", "chat", "own", "chat"]
    found = given_by_kind(kinds, [True, True, True, False], [False, True, False, False])
    assert found == {"own": Given(2, 2, 0), "chat": Given(2, 1, 1)}
