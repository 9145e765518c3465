"""The detector: which prompts it takes for forgotten ones, and what it remembers."""

import numpy as np
import pytest
import torch

from tfrnet.methods.o3.detector import Detector, DetectorSettings
from tfrnet.methods.o3.prompt_memory import (
    Memory,
    earlier_factors,
    extended,
    new_prompts,
    prompt_key,
    snapshot_tensors,
)


def _prompts(count, first=0):
    return [(number, 1) for number in range(first, first + count)]


def _family(count, seed, centre=0, layers=3, d=64):
    """Points around one of some directions, of fewer true dimensions than they have."""
    random = np.random.default_rng(100)
    base, spread = random.normal(0, 1, (9, layers, d))[centre], random.normal(0, 1, (6, layers, d))
    drawn = np.random.default_rng(seed)
    points = base * 8 + np.einsum("nk,kld->nld", drawn.normal(0, 1, (count, 6)), spread)
    points += 0.3 * drawn.normal(0, 1, points.shape)
    return torch.tensor(points, dtype=torch.float32)


def _memory(count=40, **options):
    return extended(None, _prompts(count), _family(count, 0), 0.2, 0, 0, **options)


def test_two_families_are_told_apart():
    detector = Detector(_memory(), DetectorSettings())
    alike = detector.weights(_prompts(20, 100), _family(20, 1))
    other = detector.weights(_prompts(20, 200), _family(20, 2, centre=1))
    assert np.mean(alike) > 0.8
    assert other == [0.0] * 20
    soft = Detector(_memory(), DetectorSettings(gate="soft"))
    assert soft.weights(_prompts(3, 200), _family(3, 2, centre=1)) == pytest.approx(
        [0.119203] * 3, abs=1e-4
    )
    always = Detector(_memory(), DetectorSettings(gate="always"))
    assert always.weights(_prompts(3, 200), _family(3, 2, centre=1)) == [1.0] * 3


def test_a_known_prompt_is_scored_without_itself():
    memory = _memory(8)
    detector = Detector(memory, DetectorSettings(gate="soft"))
    known = detector.weights(_prompts(8), memory.features)
    strangers = detector.weights(_prompts(8, 100), memory.features)
    train = memory.train.numpy()
    assert np.array(known)[~train] == pytest.approx(np.array(strangers)[~train])
    # Next to itself every one of them is at the same place, which says nothing.
    assert np.ptp(np.array(strangers)[train]) < 1e-3 < 0.1 < np.ptp(np.array(known)[train])


def test_the_statistics_are_those_of_the_two_parts():
    memory = _memory()
    detector = Detector(memory, DetectorSettings())
    mu1, mu2, sigma = detector.statistics
    fresh = detector.distances(memory.features[~memory.train].double().numpy())
    assert (mu2, sigma) == pytest.approx((fresh.mean(), max(fresh.std(), sigma)))
    assert abs(mu1 - mu2) < 2 * sigma


def test_the_spread_is_never_zero():
    memory = _memory(6)
    assert int((~memory.train).sum()) == 1
    assert Detector(memory, DetectorSettings()).statistics[2] > 0
    same = Memory(torch.ones(6, 2, 8), memory.train, memory.keys)
    weights = Detector(same, DetectorSettings()).weights(_prompts(2), torch.ones(2, 2, 8))
    assert np.isfinite(weights).all()


def test_with_too_few_prompts_only_the_known_count():
    detector = Detector(_memory(2), DetectorSettings())
    assert not detector.has_statistics
    assert detector.weights([(0, 1), (1, 1), (7, 7)], _family(3, 0)) == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("sizes", "held_out"), [((8, 8, 8), (2, 3, 5)), ((1,) * 5, (0, 0, 1, 1, 1))]
)
def test_a_fifth_of_all_prompts_is_held_out(sizes, held_out):
    memory, found = None, []
    for number, size in enumerate(sizes):
        before = memory
        first = 0 if memory is None else len(memory.keys)
        memory = extended(memory, _prompts(size, first), _family(size, number), 0.2, 0, number)
        found.append(int((~memory.train).sum()))
        if before is not None:
            assert torch.equal(memory.train[: len(before.train)], before.train)
            assert torch.equal(memory.features[: len(before.train)], before.features)
    assert tuple(found) == held_out


def test_the_split_hangs_on_the_seed():
    splits = {
        tuple(extended(None, _prompts(8), _family(8, 0), 0.2, s).train.tolist()) for s in range(9)
    }
    assert len(splits) > 3


def test_a_prompt_is_remembered_once():
    memory = _memory(3)
    assert new_prompts(memory, [(0, 1), (9, 9), (2, 1), (9, 9)]) == [(9, 9)]
    assert new_prompts(None, [(1,), (1,), (2,)]) == [(1,), (2,)]
    assert prompt_key((1, 2)) == prompt_key([1, 2]) != prompt_key((2, 1))
    assert Memory.from_tensors({}) is None
    again = Memory.from_tensors(memory.tensors())
    assert again is not None and torch.equal(again.keys, memory.keys)


def test_earlier_factors_grow_by_the_last():
    first = {"m.lora_A": torch.full((2, 3), 1.0), "m.lora_B": torch.zeros(3, 2)}
    earlier = earlier_factors(first)
    assert earlier["m.lora_A"].shape == (1, 2, 3) and list(earlier) == ["m.lora_A"]
    second = {"m.lora_A": torch.full((2, 3), 2.0)} | snapshot_tensors(earlier)
    grown = earlier_factors(second)
    assert list(grown) == ["m.lora_A"] and grown["m.lora_A"][:, 0, 0].tolist() == [1.0, 2.0]
    assert earlier_factors({}) == {}
