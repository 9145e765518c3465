"""What the figures draw where."""

from __future__ import annotations

import numpy as np
import pytest

from tests.bench.made_up import run_of
from tfrnet_bench.figures.capacity_plot import draw_capacity
from tfrnet_bench.figures.reemergence_plot import draw_reemergence
from tfrnet_bench.figures.structure_plot import draw_structure
from tfrnet_bench.figures.style import figure_style
from tfrnet_bench.figures.tradeoff_plot import draw_honest, draw_tradeoff
from tfrnet_bench.honest import honest
from tfrnet_bench.results import CellResult


@pytest.fixture
def cells(results):
    with figure_style():
        yield run_of(results)


def test_points_lie_at_the_means_over_seeds(cells, results):
    axes = draw_tradeoff(cells).axes[0]
    point = next(line for line in axes.lines if line.get_label() == "GA")
    scores = [r["scores"] for r in results if (r["variant"], r["stream"]) == ("ga", "openbookqa")]
    assert point.get_xdata()[0] == pytest.approx(
        100 - np.mean([s["forget_average"] for s in scores])
    )
    assert point.get_ydata()[0] == pytest.approx(np.mean([s["retain_average"] for s in scores]))


def test_honest_points_lie_at_the_means_of_both_sides(cells, results):
    axes = draw_honest(cells).axes[0]
    point = next(line for line in axes.lines if line.get_label() == "GA")
    found = [
        honest(CellResult.from_dict(r))
        for r in results
        if (r["variant"], r["stream"]) == ("ga", "openbookqa")
    ]
    assert point.get_xdata()[0] == pytest.approx(np.mean([f["forgotten"] for f in found]))
    assert point.get_ydata()[0] == pytest.approx(np.mean([f["kept"] for f in found]))


def test_lines_of_equal_trade_off_are_harmonic_means(cells):
    axes = draw_tradeoff(cells).axes[0]
    levels = [line for line in axes.lines if line.get_label() == "equal Trade-off"]
    assert levels
    for line in levels:
        forgotten, kept = line.get_data()
        means = 2 * forgotten * kept / (forgotten + kept)
        assert means == pytest.approx(10 * round(means[0] / 10))


def test_shares_are_stacked_to_a_hundred(cells):
    for axes in draw_structure(cells).axes:
        tops = [bar.get_y() + bar.get_height() for bar in axes.containers[-1]]
        assert tops == pytest.approx([100] * 20)
        assert axes.containers[0][0].get_height() == 100  # all of the first request is core


def test_a_panel_without_results_says_so(results):
    some = [r for r in results if (r["variant"], r["stream"]) != ("tfr", "boolq")]
    with figure_style():
        panels = draw_structure(run_of(some)).axes
    assert [text.get_text() for text in panels[1].texts] == ["no result"]


def test_capacity_starts_before_the_first_request(cells):
    line = draw_capacity(cells).axes[0].lines[0]
    assert list(line.get_xdata()) == list(range(21))
    assert line.get_ydata()[0] == 0


def test_the_heat_map_pales_what_was_not_requested_yet(cells):
    axes = draw_reemergence(cells).axes[0]
    values, veil = (image.get_array() for image in axes.images)
    assert values.shape == (20, 21)
    paled = veil[..., 3] > 0
    for request in range(1, 21):
        # Row i is pale before its own request, columns 0 to i - 1, and no longer.
        assert paled[request - 1].tolist() == [True] * request + [False] * (21 - request)


def test_the_outline_passes_under_every_first_own_cell(cells):
    xs, ys = draw_reemergence(cells).axes[0].lines[0].get_data()
    corners = set(zip(xs, ys, strict=True))
    assert {(i - 0.5, i + 0.5) for i in range(1, 21)} <= corners
    assert (20.5, 0.5) in corners


def test_the_heat_map_of_another_variant(cells):
    assert "GA" in draw_reemergence(cells, "ga").get_suptitle()
    assert draw_reemergence(cells, "o3") is None
