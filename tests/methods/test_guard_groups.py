"""The guard by group on a live model: one group decides, and without groups nothing changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests import tiny
from tfrnet.data.examples import Example
from tfrnet.method import find_config, find_method
from tfrnet.session import Session

RETAIN = tiny.examples(12)
FIRST, SECOND = tiny.requests(2)
# What is near to the first request goes along with it; there is little of it among much else.
NEAR = [Example(f"So {each.prompt}", each.answer, group="near") for each in FIRST.examples]
NEAR.append(Example(f"And {NEAR[0].prompt}", NEAR[0].answer, group="near"))
FAR = [replace(each, group="far") for each in tiny.examples(16, 20)]
GUARD = [*FAR, *NEAR]
PLAIN = [replace(each, group="") for each in GUARD]


def settings(**changes):
    few = {"guard_examples": 20, "retain_examples": 6, "steps": 1, "backtracks": 0}
    return tiny.deep(**few | {"hold_guard": False, "guard_relative": 0.7} | changes)


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model():
    return tiny.make_trained_model()


def forget(model, guard: Sequence[Example], config, method="tfr"):
    """Return the outcome of the first request, the state's digest, and what was measured."""
    net = find_method(method)(model, tiny.make_tokenizer(), RETAIN, config, guard=guard)
    try:
        outcome = net.forget(FIRST)
        losses = {
            name: float(net._losses(net.encode([e for e in guard if e.group == name], "")).mean())
            for name in {each.group for each in guard}
        }
        return outcome, net.state.digest(), losses
    finally:
        net.detach()


def told(outcome) -> dict:
    apart = ("seconds", "memory", "guard_groups")
    return {name: value for name, value in outcome.to_dict().items() if name not in apart}


# No groups, no change


def test_groups_that_never_decide_change_no_bit(model) -> None:
    config = settings(guard_relative=5.0)
    plain, digest, _ = forget(model, PLAIN, config)
    named, same_digest, _ = forget(model, GUARD, config)
    assert plain.accepted
    assert same_digest == digest
    assert told(named) == told(plain)
    assert set(named.guard_groups) == {"far", "near"}
    assert "guard_groups" not in plain.to_dict()
    # The mean is over all, as it was: 16 of one group and 4 of the other.
    after = {name: losses["after"] for name, losses in named.guard_groups.items()}
    assert (16 * after["far"] + 4 * after["near"]) / 20 == pytest.approx(named.guard_loss_after)


@pytest.mark.slow
def test_one_group_of_all_is_no_group(model) -> None:
    alone = [replace(each, group="all") for each in GUARD]
    outcome, digest, _ = forget(model, alone, settings())
    plain, same_digest, _ = forget(model, PLAIN, settings())
    assert digest == same_digest
    assert outcome.to_dict().keys() == plain.to_dict().keys()


# One group decides


def test_a_request_that_costs_one_group_is_rejected_though_the_mean_is_fine(model) -> None:
    plain, _, _ = forget(model, PLAIN, settings())
    assert plain.accepted
    outcome, _, losses = forget(model, GUARD, settings())
    assert not outcome.accepted
    assert outcome.guard_loss_after == plain.guard_loss_after
    found = outcome.guard_groups["near"]
    assert outcome.reason == (
        f"guard loss in group 'near' would rise from {found['before']:.4f} to "
        f"{found['after']:.4f}, over the limit {1.7 * found['before']:.4f}"
    )
    # Nothing has changed, so this is what it was before.
    assert losses["near"] == pytest.approx(found["before"], rel=1e-5)
    assert losses["far"] == pytest.approx(outcome.guard_groups["far"]["before"], rel=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"backtracks": 5},
        pytest.param({"preset": "fisher"}, marks=pytest.mark.slow),
        pytest.param({"preset": "paper"}, marks=pytest.mark.slow),
        pytest.param({"preset": "calibrated"}, marks=pytest.mark.slow),
    ],
    ids=["solve", "fisher", "paper", "calibrated"],
)
def test_steps_are_shortened_until_every_group_agrees(model, changes) -> None:
    if preset := changes.get("preset"):
        config = find_config("tfr").preset(preset)
        tight = ["guard_relative=0.05", "guard_absolute=0", "guard_examples=20", "backtracks=5"]
        config = config.with_overrides([*tight, *_SMALL[preset]])
    else:
        config = settings(**changes)
    outcome, _, losses = forget(model, GUARD, config)
    assert outcome.attempts > 1
    assert outcome.accepted
    for name, found in outcome.guard_groups.items():
        assert found["after"] <= (1 + config.guard_relative) * found["before"]
        assert losses[name] == pytest.approx(found["after"], rel=1e-5)


_SMALL = {"fisher": ["steps=2"], "paper": [], "calibrated": ["steps=3", "least_reached=0"]}


def test_a_method_that_trains_asks_the_same_guard(model) -> None:
    config = find_config("npo").preset("default")
    config = config.with_overrides(
        ["use_guard=true", "guard_relative=0.1", "guard_examples=20", "learning_rate=0.001"]
    ).with_overrides(["steps=2"])
    assert forget(model, PLAIN, config, "npo")[0].accepted
    outcome, _, _ = forget(model, GUARD, config, "npo")
    assert not outcome.accepted
    assert outcome.reason.startswith("guard loss in group 'near' would rise from ")


@pytest.mark.slow
def test_the_loss_of_each_group_is_that_of_the_request_before(model) -> None:
    net = find_method("tfr")(
        model, tiny.make_tokenizer(), RETAIN, settings(guard_relative=5.0), guard=GUARD
    )
    try:
        first, second = net.forget(FIRST), net.forget(SECOND)
    finally:
        net.detach()
    for name in ("far", "near"):
        assert second.guard_groups[name]["before"] == first.guard_groups[name]["after"]


# Which examples


def test_without_guard_data_each_group_of_the_retain_data_gives_as_many() -> None:
    many = [replace(each, group="many") for each in tiny.examples(40)]
    few = [replace(each, group="few") for each in tiny.examples(8, 40)]
    net = find_method("tfr")(
        tiny.make_model(), tiny.make_tokenizer(), [*many, *few], settings(guard_examples=8)
    )
    assert sorted(each.group for each in net.guard) == ["few"] * 4 + ["many"] * 4
    net.detach()


# The life of a state


def open_session(model, folder: Path, guard=GUARD, retain=RETAIN, **changes) -> Session:
    config = settings(**{"guard_relative": 5.0} | changes)
    return Session(model, tiny.make_tokenizer(), folder, retain, config=config, guard=guard)


@pytest.mark.slow
def test_a_stream_in_pieces_ends_where_it_would_at_once(model, tmp_path: Path) -> None:
    with open_session(model, tmp_path / "at once") as session:
        at_once = [told(outcome) for outcome in session.run([FIRST, SECOND])]
        digest = session.store.position.digest
    in_pieces = []
    for request in (FIRST, SECOND):
        with open_session(model, tmp_path / "pieces") as session:
            in_pieces.append(told(session.forget(request)))
            assert session.store.position.digest == digest or request is FIRST
    assert in_pieces == at_once


@pytest.mark.slow
def test_names_may_come_later_and_no_state_holds_them_but_in_its_ledger(
    model, tmp_path: Path
) -> None:
    folder = tmp_path / "state"
    with open_session(model, folder, PLAIN) as session:
        manifest = session.store.layout.manifest.read_bytes()
        assert not session.forget(FIRST).guard_groups
    # Guard data says it, also where the retain data has the same words without a name.
    with open_session(model, folder, retain=[*RETAIN, *PLAIN[:2]]) as session:
        assert session.store.layout.manifest.read_bytes() == manifest
        assert session.unlearner.guard == PLAIN
        assert set(session.forget(SECOND).guard_groups) == {"far", "near"}
    first, second = map(json.loads, (folder / "ledger.jsonl").read_text().splitlines()[1:])
    assert set(second) - set(first) == {"guard_groups"}
    assert set(second["guard_groups"]["near"]) == {"before", "after"}
