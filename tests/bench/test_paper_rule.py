"""The page about the paper's rule has what its cells say."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

from benchmarks import paper_map_figure as figure
from benchmarks.default_table import STREAMS, Row, read_cells
from benchmarks.paper_map import GUARDS
from tfrnet_bench.constants import FIRST_TUNING_SEED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "benchmarks" / "notebook" / "paper-rule.md").read_text()
WORDS = " ".join(PAGE.split())
CELLS = read_cells(figure.CELLS)
SVG = "{http://www.w3.org/2000/svg}"


def accepted(knowledge: str, budget: int, guard: float) -> int:
    wanted = (knowledge, budget, guard)
    names = ("knowledge", "budget", "guard_relative")
    own = [row for row in CELLS if tuple(row[name] for name in names) == wanted]
    assert sum(row["requests"] for row in own) == 120
    return sum(row["accepted"] for row in own)


def cell(model: str, stream: str, budget: int, guard: float) -> Row:
    found = figure.cell_of(CELLS, model, stream, budget, guard)
    assert found
    return found


def test_the_tables_are_those_of_the_cells():
    assert figure.paper_table(CELLS) in PAGE
    assert figure.accepted_table(CELLS) in PAGE


# A panel's title, a budget and a tolerance: where a cell stands in the figure.
Place = tuple[str, str, str]


def test_the_figure_is_that_of_the_cells():
    expected = {
        (
            f"{row['model']} ({row['knowledge']}), {row['task']}",
            str(row["budget"]),
            f"{100 * row['guard_relative']:.0f} %",
        ): figure.words_of(row)
        for row in CELLS
    }
    drawn = cells_drawn(ROOT / "benchmarks/results/research/paper-map.svg")
    assert {place: words for place, words in drawn.items() if words != "not run"} == expected


def cells_drawn(path: Path) -> dict[Place, str]:
    """Return what the figure says in every cell, by the title and the nearest ticks."""
    found: dict[Place, str] = {}
    for panel in ElementTree.parse(path).iter(f"{SVG}g"):
        inside = [group for group in panel if group.get("id", "").startswith("text_")]
        if not panel.get("id", "").startswith("axes_") or not inside:
            continue
        *cells, title = ([*group.iter(f"{SVG}text")] for group in inside)
        budgets, tolerances = (
            [text for text in axis.iter(f"{SVG}text") if "%" in text.text or text.text.isdigit()]
            for axis in panel
            if axis.get("id", "").startswith("matplotlib.axis")
        )
        for lines in cells:
            x, y = position(lines[0])
            column = min(budgets, key=lambda tick, x=x: abs(position(tick)[0] - x))
            row = min(tolerances, key=lambda tick, y=y: abs(position(tick)[1] - y))
            place = title[0].text, column.text, row.text
            assert place not in found
            found[place] = "\n".join(line.text for line in lines)
    return found


def position(text: ElementTree.Element) -> tuple[float, float]:
    """Return where a text of matplotlib's stands: the last two numbers of its transform."""
    x, y = re.findall(r"-?[\d.]+", text.get("transform", ""))[-2:]
    return float(x), float(y)


def test_cells_are_of_the_tuning_seed_and_whole():
    assert {(row["seed"], row["requests"]) for row in CELLS} == {(FIRST_TUNING_SEED, 20)}
    models = [model for model, _ in figure.models_of(CELLS)]
    for place in product(models, STREAMS, (32, 128), GUARDS):
        assert figure.cell_of(CELLS, *place), place


def test_what_the_page_says_of_accepted_requests():
    assert accepted("natural", 128, 0.05) + accepted("memorised", 128, 0.05) == 0
    assert "none of 240 requests" in WORDS
    few = [accepted(kind, 32, 0.05) for kind in ("natural", "memorised")]
    assert "accept {} of 120, those that memorised {} of 120".format(*few) in WORDS
    natural, memorised = (
        [accepted(kind, 128, guard) for guard in GUARDS] for kind in ("natural", "memorised")
    )
    assert "accept {} of 120 with 5 %, {} with 20 % and {} with 100 %".format(*natural) in WORDS
    assert "memorised ones {}, {} and {}.".format(*memorised) in WORDS
    shares = [cell(m, "openbookqa", 32, 0.05)["accepted"] for m in ("smollm2-135m", "gemma3-270m")]
    assert "{} and {} of 20 are accepted here".format(*shares) in WORDS


def test_a_larger_budget_never_passes_more_often():
    large = [row for row in CELLS if row["budget"] == 128]
    assert large
    for row in large:
        small = cell(row["model"], row["task"], 32, row["guard_relative"])
        assert row["accepted"] <= small["accepted"]


def test_every_accepted_request_suppressed_channels():
    for row in CELLS:
        assert all(row["selected"][number - 1] > 0 for number in row["accepted_at"])
        assert len(row["accepted_at"]) == row["accepted"]


def test_what_the_page_says_of_the_guard_loss():
    nats: dict[str, list[float]] = {"natural": [], "memorised": []}
    times: dict[str, list[float]] = {"natural": [], "memorised": []}
    for row in CELLS:
        if (row["budget"], row["guard_relative"]) == (128, 0.05):
            nats[row["knowledge"]].append(row["guard_first"] * (figure.rise(row) - 1))
            times[row["knowledge"]].append(figure.rise(row))
    low, high = ([min(each), max(each)] for each in nats.values())
    assert "cost {:.1f} to {:.1f} nats on natural models".format(*low) in WORDS
    assert "and {:.1f} to {:.1f} on memorised ones".format(*high) in WORDS
    low, high = ([min(each), max(each)] for each in times.values())
    assert "x{:.1f} to x{:.1f} and x{:.0f} to x{:.0f}".format(*low, *high) in WORDS


def test_what_the_page_says_of_forgetting():
    compared = figure.comparable(CELLS)
    worse = sum((figure.excess(row) or 0) < 0 for row in compared)
    least = min(map(figure.chance, compared))
    assert f"the smallest p of {len(compared)} is {least:.2f}, and in {worse} of them" in WORDS
    ends = [r["guard_last"] / r["guard_first"] for r in CELLS if r["accepted"] == 20]
    assert f"ends at {min(ends):.1f} to {max(ends):.1f} times" in WORDS
    known = [row["never"]["known"] for row in compared]
    assert f"{min(known)} to {max(known)} known items that were never requested" in WORDS


def test_a_favourite_label_is_not_ignorance():
    found = cell("smollm2-135m", "boolq", 32, 0.05)["requested"]
    before, after = found["right"]
    lost = found["known"] * found["forgotten"] / 100
    won = (after - before) * found["items"] / 100 + lost
    assert f"seems to forget {found['forgotten']:.0f} %" in WORDS
    assert f"{100 * (lost + won) / found['items']:.0f} % of its answers turned" in WORDS
