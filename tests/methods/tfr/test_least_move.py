"""The solver against SciPy's bounded least squares, in float64 and at the size of a real model."""

import numpy as np
import pytest
import torch
from scipy.optimize import lsq_linear

from tfrnet.methods.tfr.steps import least_move as least_move_module
from tfrnet.methods.tfr.steps.least_move import Bounds, Rows, _Tall, least_move

FORGET, RETAIN, CHANNELS = 4, 6, 60
STIFFNESS = {"forget_stiffness": 10.0, "retain_stiffness": 20.0}


def problem(seed, channels=CHANNELS, dtype=torch.float64):
    source = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=source, dtype=dtype)

    mask = draw(channels).abs().clamp(max=1)
    mask[: channels // 2] = 1  # these cannot be raised
    return {
        "forget": 3 * draw(FORGET, channels),
        "falls": draw(FORGET).abs() * 4,
        "retain": 3 * draw(RETAIN, channels),
        "lost": draw(RETAIN),
        "cost": draw(channels).abs() + 0.1,
        "bounds": Bounds(mask - 1, mask),
    }


def solve(forget, falls, retain, lost, cost, bounds, forget_stiffness, retain_stiffness):
    """Two kinds of rows: those that fall, and those that get back what they have lost."""
    held = Rows(retain, -lost, retain_stiffness / max(1, len(retain)))
    return least_move([Rows(forget, falls, forget_stiffness), held], cost, bounds)


def stacked(given):
    """The same problem as one matrix and one right-hand side."""
    forget = STIFFNESS["forget_stiffness"] ** 0.5
    retain = (STIFFNESS["retain_stiffness"] / len(given["retain"])) ** 0.5
    rows = [
        np.diag(given["cost"].sqrt().numpy()),
        forget * given["forget"].numpy(),
        retain * given["retain"].numpy(),
    ]
    right = [
        np.zeros(len(given["cost"])),
        forget * given["falls"].numpy(),
        -retain * given["lost"].numpy(),
    ]
    return np.concatenate(rows), np.concatenate(right)


@pytest.mark.parametrize("seed", range(12))
def test_agrees_with_scipy(seed):
    given = problem(seed)
    move = solve(**given, **STIFFNESS).numpy()
    matrix, right = stacked(given)
    low, high = given["bounds"].lowest.numpy(), given["bounds"].highest.numpy()
    assert (move >= low - 1e-12).all() and (move <= high + 1e-12).all()
    # SciPy wants an interval with an inside.
    reference = lsq_linear(matrix, right, bounds=(low - 1e-9, high + 1e-9), method="bvls")
    assert reference.success
    np.testing.assert_allclose(move, reference.x, atol=1e-5)


def test_without_bounds_in_reach_it_is_the_normal_equations_solution():
    given = problem(0)
    wide = torch.full((CHANNELS,), 1e6, dtype=torch.float64)
    given["bounds"] = Bounds(-wide, wide)
    matrix, right = stacked(given)
    expected = np.linalg.lstsq(matrix, right, rcond=None)[0]
    np.testing.assert_allclose(solve(**given, **STIFFNESS).numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("size", [0.1, 1.0, 10.0])
def test_float32_is_near_float64_with_many_channels(size):
    exact = problem(1, channels=50_000)
    exact["forget"] *= size
    single = {
        name: Bounds(value.lowest.float(), value.highest.float())
        if isinstance(value, Bounds)
        else value.float()
        for name, value in exact.items()
    }
    expected, move = solve(**exact, **STIFFNESS), solve(**single, **STIFFNESS)
    assert (move - expected).norm() < 1e-3 * expected.norm()


@pytest.mark.parametrize("reachable", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_rows_that_are_steep_and_alike_are_told_apart_in_float32(seed, reachable):
    """As with a real model, where the largest of the rows' products is 4e8 and the least 1e-8."""
    source = torch.Generator().manual_seed(seed)
    shared, own = torch.randn(1, 300, generator=source), torch.randn(40, 300, generator=source)
    steepness = torch.logspace(2, -1 if reachable else -3, 40)
    gradients = steepness.unsqueeze(1) * (shared + (0.1 if reachable else 0.01) * own)
    falls = torch.linspace(0.1, 0.3, 40) * steepness if reachable else torch.linspace(1, 3, 40)
    bounds = Bounds(torch.zeros(300), torch.ones(300))
    move = least_move([Rows(gradients, falls, 10.0)], torch.full((300,), 1e-3), bounds)
    matrix = np.concatenate([1e-3**0.5 * np.eye(300), 10**0.5 * gradients.double().numpy()])
    right = np.concatenate([np.zeros(300), 10**0.5 * falls.double().numpy()])
    reference = lsq_linear(matrix, right, bounds=(0, 1), method="bvls")
    assert reference.success
    np.testing.assert_allclose(move.numpy(), reference.x, atol=5e-4)


def test_only_the_named_channels_move():
    given = problem(2)
    given["bounds"] = given["bounds"].only(torch.tensor([3, 40]))
    move = solve(**given, **STIFFNESS)
    assert set(move.nonzero().flatten().tolist()) <= {3, 40}
    assert bool(move.any())


def test_no_retain_row_is_needed():
    given = problem(3)
    given["retain"], given["lost"] = given["retain"][:0], given["lost"][:0]
    falls = given["forget"] @ solve(**given, **STIFFNESS)
    assert (falls - given["falls"]).abs().max() < 0.2


def test_what_retain_examples_have_lost_is_given_back():
    """Two channels: the first holds the forget example, the second, suppressed, a retain one."""
    mask = torch.tensor([1.0, 0.2], dtype=torch.float64)
    move = solve(
        forget=torch.tensor([[2.0, 0.0]], dtype=torch.float64),
        falls=torch.tensor([1.0], dtype=torch.float64),
        retain=torch.tensor([[0.0, 4.0]], dtype=torch.float64),
        lost=torch.tensor([1.0], dtype=torch.float64),
        cost=torch.full((2,), 1e-6, dtype=torch.float64),
        bounds=Bounds(mask - 1, mask),
        forget_stiffness=1.0,
        retain_stiffness=1.0,
    )
    assert move.tolist() == pytest.approx([0.5, -0.25], abs=1e-4)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_rows_that_are_not_finite_move_nothing(bad):
    given = problem(4)
    given["forget"][0, 0] = bad
    assert not bool(solve(**given, **STIFFNESS).any())


def test_it_ends_where_nothing_is_left_to_gain(monkeypatch):
    """A tolerance that rounding does not allow must not keep it going."""
    given, steps = problem(5), []
    monkeypatch.setattr(least_move_module, "_TOLERANCE", 0.0)
    real = torch.linalg.solve_ex

    def counted(*arguments):
        steps.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(torch.linalg, "solve_ex", counted)
    solve(**given, **STIFFNESS)
    assert len(steps) < 20


def test_a_gram_matrix_made_from_the_last_one_is_that_of_all_columns():
    source = torch.Generator().manual_seed(0)
    matrix = torch.randn(5, 1000, generator=source)
    tall = _Tall(matrix)
    chosen = torch.ones(1000, dtype=torch.bool)
    for changed in (slice(0, 0), slice(0, 300), slice(200, 500), slice(0, 990), slice(3, 5)):
        chosen = chosen.clone()
        chosen[changed] = ~chosen[changed]
        picked = matrix.double()[:, chosen]
        torch.testing.assert_close(tall.gram(chosen), picked @ picked.T)
    x, y = torch.randn(1000, generator=source).double(), torch.randn(5, generator=source).double()
    torch.testing.assert_close(tall.times(x), matrix.double() @ x)
    torch.testing.assert_close(tall.transposed_times(y), y @ matrix.double())


def test_parts_of_rows_and_of_columns_make_no_difference(monkeypatch):
    given = problem(1, channels=500)
    whole = solve(**given, **STIFFNESS)
    monkeypatch.setattr(least_move_module, "_BLOCK", 64)
    monkeypatch.setattr(least_move_module, "_PART", 700)
    torch.testing.assert_close(solve(**given, **STIFFNESS), whole, rtol=0, atol=1e-9)
