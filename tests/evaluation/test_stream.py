"""A stream on a small model, against each generation applied and asked on its own."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests import tiny
from tests.datasets import made_up_folder
from tfrnet import Session, TFRConfig, apply_state
from tfrnet.core.errors import InputError, StateError
from tfrnet.data.protocol import Sizes, make_split
from tfrnet.data.sources import Source
from tfrnet.data.tasks import find_task
from tfrnet.evaluation.bystanders import find_bystanders
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.metrics.requested import honest_scores
from tfrnet.evaluation.stream import forgotten_answers, measure_stream, stream_entries
from tfrnet.evaluation.tasks import evaluate_task
from tfrnet.models.load import LoadedModel
from tfrnet.state.store import StateStore

SIZES = Sizes(requests=4, request_size=3, forget_eval=8, heldout=4, retain=(12, 6), guard=(6, 3))
# Without its guard every request of the paper's method moves the mask.
CONFIG = TFRConfig.paper(guard_examples=8, retain_examples=6, use_guard=False, budget=40)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return Source("folder", made_up_folder(tmp_path_factory.mktemp("data")))


@pytest.fixture(scope="module")
def split(source):
    return make_split("openbookqa", 0, source, SIZES)


@pytest.fixture(scope="module")
def ran(split, tmp_path_factory):
    """A state after three of the four requests."""
    folder = tmp_path_factory.mktemp("run") / "state"
    loaded = LoadedModel(tiny.make_trained_model(), tiny.make_tokenizer())
    with Session(*loaded, folder, split.retain_examples(), config=CONFIG) as session:
        outcomes = list(session.run(split.requests()[:3]))
    assert any(outcome.accepted and outcome.selected for outcome in outcomes)
    return loaded, folder


@pytest.fixture(scope="module")
def measured(ran, split, source):
    loaded, folder = ran
    beside = find_bystanders(split, source, 4)
    with apply_state(loaded.model, folder) as mask:
        before = mask.values.clone()
        result = measure_stream(
            Evaluator(loaded, 4), mask, StateStore.open(folder), split, bystanders=beside
        )
        assert torch.equal(mask.values, before)
    return result


@pytest.fixture(scope="module")
def found(measured):
    return measured.to_dict()


@pytest.fixture(scope="module")
def by_generation(ran, split):
    """Right or wrong, loss and mask after 0, 1, 2 and 3 requests, one state at a time."""
    loaded, folder = ran
    store = StateStore.open(folder)
    numbers = [0, *(e["generation"] for e in store.entries if e["kind"] == "request")]
    rows = []
    for number in numbers:
        with apply_state(loaded.model, folder, number) as mask:
            task = find_task("openbookqa")
            samples = evaluate_task(Evaluator(loaded, 1), task, split.forget, "x").samples
            correct = [sample["correct"] for sample in samples]
            rows.append((correct, [sample["loss"] for sample in samples], mask.values.clone()))
    return rows


def test_the_matrices_are_those_of_each_state_asked_alone(found, by_generation):
    assert found["requests"] == [f"openbookqa-0-0{n}" for n in (1, 2, 3)]
    accuracy, loss = found["forgetting"]["accuracy"], found["forgetting"]["loss"]
    for i in range(3):
        items = slice(3 * i, 3 * i + 3)
        assert accuracy["before"][i] == pytest.approx(100 * np.mean(by_generation[0][0][items]))
        for t in range(3):
            correct, losses, _ = by_generation[t + 1]
            assert accuracy["matrix"][i][t] == pytest.approx(100 * np.mean(correct[items]))
            assert loss["matrix"][i][t] == pytest.approx(np.mean(losses[items]), abs=1e-5)
    assert loss["matrix"] != [loss["before"]] * 3


def test_fixed_seen_and_unseen_items(found, by_generation, split):
    forgetting = found["forgetting"]
    fixed = [split.forget.index(item) for item in split.forget_eval]
    for t in range(4):
        correct = np.array(by_generation[t][0], dtype=float)
        assert forgetting["fixed"][t] == pytest.approx(100 * correct[fixed].mean())
        if t:
            assert forgetting["seen"][t - 1] == pytest.approx(100 * correct[: 3 * t].mean())
        if t in (1, 2):
            # Of the requests that came: the fourth never did.
            assert forgetting["unseen"][t - 1] == pytest.approx(100 * correct[3 * t : 9].mean())


def test_the_structure_is_read_from_the_masks_and_the_ledger(found, by_generation, ran):
    structure = found["structure"]
    masks = [mask for _, _, mask in by_generation]
    assert structure["channels"] == masks[0].numel()
    assert structure["dormant"] == [int((mask <= 0.1).sum()) for mask in masks]
    assert structure["suppressed_now"] == [int((mask < 1).sum()) for mask in masks]
    ever = set()
    for t in range(1, 4):
        ever |= set((masks[t] < masks[t - 1]).nonzero().flatten().tolist())
        assert structure["suppressed_ever"][t - 1] == len(ever)
        assert structure["recovered"][t - 1] == int((masks[t] > masks[t - 1]).sum())
        after, before = (int((masks[i] <= 0.1).sum()) for i in (t, t - 1))
        assert structure["net_dormant"][t - 1] == after - before
    first = structure["composition"][0]
    assert first == {"core": 1.0, "new": 0.0, "recurring": 0.0}
    assert all(sum(share.values()) == pytest.approx(1) for share in structure["composition"])


def test_the_honest_trade_off_is_that_of_each_checkpoint_asked_alone(
    found, by_generation, ran, split
):
    loaded, folder = ran
    generations = [0, *(e["generation"] for e in StateStore.open(folder).entries)][-4:]
    kept = []
    for number in generations:
        with apply_state(loaded.model, folder, number):
            kept.append(
                np.mean(
                    [
                        evaluate_task(Evaluator(loaded, 1), find_task(task), items, "x").accuracy
                        for task, items in split.heldout.items()
                    ]
                )
            )
    seen = [100 * np.mean(by_generation[t][0][: 3 * t]) for t in (1, 2, 3)]
    start = 100 * np.mean(by_generation[0][0][:9])
    expected = honest_scores(start, seen, 25.0, kept[0], kept[1:])
    # A quarter of three requests ends after the first, the second and the third.
    assert [point["request"] for point in found["checkpoints"]] == [0, 1, 2, 3]
    measured = found["yardsticks"]
    if expected is None:
        assert measured["honest_trade_off"] is None
    else:
        assert measured["honest_trade_off"] == pytest.approx(expected.trade_off)
    assert measured["retain_average"] == pytest.approx(np.mean(kept[1:]))


def test_side_effects_are_measured_against_the_first_generation(found):
    beside = found["bystanders"]
    assert set(beside["witness"]) == {"openbookqa", "boolq", "arithmetic", "text"}
    # The mask moved, so no loss is exactly what it was.
    assert all(ratio != 1 for ratio in beside["witness"].values())
    tasks = [ratio for group, ratio in beside["witness"].items() if group != "text"]
    assert found["yardsticks"]["witness"] == max(tasks)


def test_the_distance_to_an_oracle_counts_requested_items_only(measured, ran, split):
    loaded, folder = ran
    with apply_state(loaded.model, folder):
        itself = forgotten_answers(Evaluator(loaded, 1), split)
    assert len(itself.said) == len(split.forget) == 12
    assert len(measured.last.said) == 9
    found = measured.to_dict(itself)["yardsticks"]
    assert found["oracle_accuracy"] == 0
    assert found["oracle_agreement"] == 100
    assert found["oracle_losses"] == pytest.approx(0, abs=0.12)
    untouched = forgotten_answers(Evaluator(loaded, 1), split)
    assert measured.to_dict(untouched)["yardsticks"]["oracle_losses"] > 0
    assert "oracle_losses" not in measured.to_dict()["yardsticks"]


def test_another_stream_is_refused(ran, split):
    store = StateStore.open(ran[1])
    with pytest.raises(InputError, match="does not hold the split's requests in their order"):
        stream_entries(store, replace(split, seed=1))


def reversed_requests(split):
    """A split whose requests have the same ids and sizes, but other examples."""
    return replace(split, forget=tuple(reversed(split.forget)))


def test_a_split_with_requests_of_another_size_is_refused(ran, source):
    smaller = make_split("openbookqa", 0, source, replace(SIZES, request_size=2))
    message = "its request openbookqa-0-01 was run with 3 examples, not the split's 2; give"
    with pytest.raises(InputError, match=message):
        stream_entries(StateStore.open(ran[1]), smaller)


def test_a_split_with_other_examples_is_refused(ran, split):
    message = "its request openbookqa-0-01 was run with other examples; give the split"
    with pytest.raises(InputError, match=message):
        stream_entries(StateStore.open(ran[1]), reversed_requests(split))


def test_without_the_key_of_a_state_only_numbers_are_compared(
    ran, split, source, tmp_path, monkeypatch
):
    import shutil

    copy, elsewhere = tmp_path / "state", tmp_path / "digest.key"
    shutil.copytree(ran[1], copy)
    store = StateStore.open(copy)
    store.layout.key.rename(elsewhere)
    other = reversed_requests(split)
    assert len(stream_entries(store, other)) == 3
    smaller = make_split("openbookqa", 0, source, replace(SIZES, request_size=2))
    with pytest.raises(InputError, match="3 examples, not the split's 2"):
        stream_entries(store, smaller)
    monkeypatch.setenv("TFRNET_DIGEST_KEY", str(elsewhere))
    assert len(stream_entries(store, split)) == 3
    with pytest.raises(InputError, match="was run with other examples"):
        stream_entries(store, other)


def test_a_generation_that_is_not_kept_is_named(ran, split, tmp_path):
    import shutil

    loaded, folder = ran
    copy = tmp_path / "state"
    shutil.copytree(folder, copy)
    store = StateStore.open(copy)
    store.layout.generation(1).unlink()
    with (
        apply_state(loaded.model, copy) as mask,
        pytest.raises(StateError, match="generation 1 is no longer kept"),
    ):
        measure_stream(Evaluator(loaded, 4), mask, store, split)


def test_a_stream_that_was_rolled_back_is_refused(ran, split, tmp_path):
    import shutil

    copy = tmp_path / "state"
    shutil.copytree(ran[1], copy)
    with StateStore.open(copy, write=True) as store:
        store.rollback(1)
        with pytest.raises(InputError, match="was rolled back"):
            stream_entries(store, split)
