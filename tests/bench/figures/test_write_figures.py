"""The figures as files."""

from __future__ import annotations

import re
import sys
from xml.etree import ElementTree

import pytest

from tests.bench.made_up import run_of
from tfrnet.core.errors import InputError
from tfrnet_bench.figures import write_figures

NAMES = ("tradeoff", "honest", "structure", "capacity", "reemergence")


@pytest.fixture(scope="module")
def folder(results, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "figures"
    paths = write_figures(run_of(results), folder)
    assert paths == [folder / f"{name}.{ending}" for name in NAMES for ending in ("svg", "png")]
    return folder


def texts(path):
    root = ElementTree.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    return {"".join(node.itertext()).strip() for node in root.iter() if node.tag.endswith("}text")}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "tradeoff",
            {"OpenBookQA", "BoolQ", "kept: R Avg", "untouched", "GA", "TFR-Net", "equal Trade-off"},
        ),
        (
            "honest",
            {
                "OpenBookQA",
                "kept, % of what was known",
                "forgotten, % of what can be",
                "GA",
                "equal honest Trade-off",
            },
        ),
        (
            "structure",
            {
                "OpenBookQA, 2 seeds",
                "core",
                "new",
                "recurring",
                "TFR-Net w/o recovery",
                "TFR-Net w/o suppression",
                "core, if drawn at random",
            },
        ),
        (
            "capacity",
            {
                "dormant channels",
                "capacity loss, %",
                "channels recovered so far",
                "with recovery",
                "without recovery",
            },
        ),
        ("reemergence", {"BoolQ, 2 seeds", "items of request i", "accuracy, %"}),
    ],
)
def test_an_svg_has_its_labels_as_text(folder, name, expected):
    assert expected <= texts(folder / f"{name}.svg")


@pytest.mark.parametrize("name", NAMES)
def test_a_png_has_pixels(folder, name):
    data = (folder / f"{name}.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert int.from_bytes(data[16:20]) > 500  # its width


def test_the_same_results_give_the_same_files(folder, results, tmp_path):
    one = [r for r in results if r["variant"] in ("none", "ga") and r["stream"] == "boolq"]
    first, second = (write_figures(run_of(one), tmp_path / name) for name in ("first", "second"))
    assert [path.name for path in first] == [
        *("tradeoff.svg", "tradeoff.png", "honest.svg", "honest.png")
    ]
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
    assert not re.search("date|matplotlib v", first[0].read_text(), re.IGNORECASE)


def test_nothing_to_show_is_no_figure(tmp_path):
    assert write_figures(run_of([]), tmp_path) == []


def test_without_matplotlib_the_way_to_install_it_is_named(results, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'tfrnet\[plot\]'"):
        write_figures(run_of(results), tmp_path)
