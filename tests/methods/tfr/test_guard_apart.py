"""The guard as a witness: no request holds what is among its examples, also without guard data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests import tiny
from tfrnet import Session, TFRConfig, TFRNet
from tfrnet.data.examples import Encoded, Example
from tfrnet.methods.tfr.steps import solved
from tfrnet.methods.tfr.steps.calibration import Calibration
from tfrnet.methods.tfr.steps.levels import AnswerOdds
from tfrnet.unlearner import choose_guard

RETAIN = tiny.examples(12)
FIRST, SECOND = tiny.requests(2, 2)
FEW = {"guard_examples": 4, "steps": 1, "siblings": 2, "guard_relative": 1, "least_reached": 0}
DEFAULT = TFRConfig.from_dict(FEW)
SOLVE = tiny.deep(guard_examples=4, retain_examples=40, steps=1, hold_guard=False)
NEW = "guard_apart"
OLDER = TFRConfig.from_dict(FEW | {NEW: False})


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[Encoded]:
    """What requests hold in place from now on."""
    found: list[Encoded] = []

    class Spied(solved.Constraints):
        def __init__(self, state, scores, model, config, **more):
            super().__init__(state, scores, model, config, **more)
            found.extend([*model.examples.retain, *more.get("rivals", ())])

    monkeypatch.setattr(solved, "Constraints", Spied)
    return found


def make_net(retain=RETAIN, config=DEFAULT, **options) -> TFRNet:
    return TFRNet(tiny.make_trained_model(), tiny.make_tokenizer(), retain, config, **options)


def texts(net: TFRNet, examples: list[Encoded]) -> set[str]:
    """What examples say, without the differences that do not count."""
    return {" ".join(net.tokenizer.decode(each.ids).split()) for each in examples}


def said(example: Example) -> str:
    return " ".join(example.joined.split())


def again(example: Example) -> Iterator[Example]:
    """The same example, as it is, split elsewhere, and as a text with other spaces."""
    yield example
    first, _, rest = example.prompt.partition(" ")
    yield Example(first, f"{rest} {example.answer}")
    yield Example("", example.joined.replace(" ", "  "), is_text=True)


# What is held


@pytest.mark.parametrize("config", [DEFAULT, SOLVE], ids=["default", "solve"])
def test_no_request_holds_an_example_that_is_among_the_guards(config, held) -> None:
    # Each occurs several times, so that a guard example has others like it.
    net = make_net([each for example in RETAIN for each in again(example)], config)
    net.forget(FIRST)
    guard = set(map(said, net.guard))
    assert guard
    assert not texts(net, held) & guard
    assert {said(each) for each in RETAIN} - guard <= texts(net, held)


def test_guard_data_that_repeats_retain_examples_is_left_out_too(held) -> None:
    net = make_net(config=SOLVE, guard=[*RETAIN[:2], *tiny.examples(2, 50)])
    net.forget(FIRST)
    assert len(net.guard) == 4
    assert texts(net, held) == set(map(said, RETAIN[2:]))


def test_what_the_model_wrote_is_left_out_if_the_guard_has_it() -> None:
    retain, guard = [Encoded((1, 2, 3), 1), Encoded((1, 4), 1)], [Encoded((1, 4), 1)]
    losses, rivals = torch.tensor([0.5, 0.7]), [Encoded((1, 4), 1), Encoded((1, 5), 1)]
    known = Calibration(retain, losses, rivals, AnswerOdds({}), is_unknown=False)
    found = known.apart_from(guard)
    assert found.retain == retain[:1]
    assert found.retain_losses.tolist() == [0.5]
    assert found.rivals == rivals[1:]


def test_examples_that_are_cut_to_the_same_tokens_are_the_same() -> None:
    first, second = (Example(f"Item {n} of the old box is", "red 7") for n in (3, 4))
    config = TFRConfig.from_dict(FEW | {"max_length": 6})
    net = make_net([first, RETAIN[0]], config, guard=[second])
    assert net._retain_encoded[0].ids == net._guard_encoded[0].ids
    assert net._usable() == net._retain_encoded[1:]


# How much has to be left


@pytest.mark.parametrize(("count", "is_apart"), [(20, True), (12, True), (11, False), (6, False)])
def test_the_guard_gives_way_where_less_than_half_of_the_retain_data_would_be_left(
    count, is_apart, held
) -> None:
    retain = tiny.examples(count)
    net = make_net(retain, replace(SOLVE, guard_examples=6))
    assert net.guard == choose_guard(retain, 6, 0, spare=True)
    assert net.guard_is_apart == is_apart
    net.forget(FIRST)
    left = set(retain) - set(net.guard) if is_apart else set(retain)
    assert texts(net, held) == set(map(said, left))
    assert set(net.holdable) == left


def test_guard_data_that_is_all_of_the_retain_data_gives_way_too() -> None:
    net = make_net(RETAIN[:3], guard=RETAIN[:4])
    assert net._usable() == net._retain_encoded
    assert net.guard_is_apart  # it has one more
    assert not make_net(RETAIN[:3], guard=RETAIN[:3]).guard_is_apart


@pytest.mark.parametrize("preset", ["paper", "deep", "fisher", "calibrated"])
def test_presets_draw_and_use_what_they_always_did(preset) -> None:
    config = TFRConfig.preset(preset)
    assert not config.leaves_guard_out
    net = make_net(config=config)
    assert net.guard == RETAIN
    assert net._usable() is net._retain_encoded
    assert not net.guard_is_apart
    assert make_net().guard_is_apart  # 4 of 12


@pytest.mark.parametrize(("preset", "is_apart"), [("deep", False), ("paper", True)])
def test_a_guard_that_is_held_is_not_apart_though_its_data_is(preset, is_apart) -> None:
    net = make_net(config=TFRConfig.preset(preset), guard=tiny.examples(4, 50))
    assert net.guard_is_apart == is_apart
    assert set(net.holdable) == {*RETAIN, *(() if is_apart else net.guard)}


# The life of a state


def test_new_retain_data_may_have_the_guards_examples_which_stay_out(held) -> None:
    net = make_net(config=SOLVE)
    guard = net.guard
    more = [*tiny.examples(10, 30), *RETAIN]
    net.forget(FIRST, more)
    assert net.guard == guard
    assert not texts(net, held) & set(map(said, guard))
    assert len(net._usable()) == len(more) - len(guard)


def open_session(folder: Path, **options) -> Session:
    return Session(tiny.make_trained_model(), tiny.make_tokenizer(), folder, RETAIN, **options)


def test_a_resumed_state_leaves_out_the_same(tmp_path: Path, held) -> None:
    with open_session(tmp_path / "at once", config=SOLVE) as session:
        guard = session.unlearner.guard
        list(session.run([FIRST, SECOND]))
        at_once = session.unlearner.state.digest()
    for request in (FIRST, SECOND):
        with open_session(tmp_path / "resumed", config=SOLVE) as session:
            assert session.unlearner.guard == guard
            session.forget(request)
            resumed = session.unlearner.state.digest()
    assert resumed == at_once
    loaded = tiny.make_trained_model(), tiny.make_tokenizer()
    net = TFRNet.from_pretrained(loaded[0], tmp_path / "resumed", loaded[1], retain=RETAIN)
    assert net.guard == guard
    assert texts(net, held) == texts(net, net._usable()) == set(map(said, set(RETAIN) - set(guard)))


def test_a_state_of_before_goes_on_as_it_began(tmp_path: Path, held, monkeypatch) -> None:
    """All retain examples are held, those of the guard too."""
    to_dict = TFRConfig.to_dict
    config = replace(SOLVE, guard_apart=False)
    with monkeypatch.context() as before:
        before.setattr(
            TFRConfig, "to_dict", lambda own: {k: v for k, v in to_dict(own).items() if k != NEW}
        )
        with open_session(tmp_path / "state", config=config) as session:
            session.forget(FIRST)
    assert NEW not in json.loads((tmp_path / "state" / "manifest.json").read_text())["config"]
    del held[:]
    with open_session(tmp_path / "state") as session:
        net = session.unlearner
        assert not net.guard_is_apart
        session.forget(SECOND)
    assert texts(net, held) == set(map(said, RETAIN))


def test_results_with_guard_data_of_their_own_are_filed_as_before() -> None:
    assert TFRConfig().leaves_guard_out
    assert NEW not in TFRConfig().filed_under()
    assert OLDER.filed_under() == DEFAULT.filed_under()
