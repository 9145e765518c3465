"""The published results of the paper's experiments, and what the docs say of them."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

import pytest

from benchmarks.results_document import DOCUMENT, RUN
from tests.datasets import needs_real, real_source
from tfrnet.models.bundled import bundled_gguf
from tfrnet.models.shipped import find_shipped
from tfrnet_bench.document import stale_tables
from tfrnet_bench.machine import Machine
from tfrnet_bench.report.bench_page import bench_page
from tfrnet_bench.results import read_run
from tfrnet_bench.run.cell import Cell
from tfrnet_bench.run.context import RunContext
from tfrnet_bench.run.plan import BenchPlan
from tfrnet_bench.run.variants import PUBLISHED
from tfrnet_bench.run_folder import CellFolder
from tfrnet_bench.tables import all_tables
from tfrnet_bench.tables.render import csv_text, latex, markdown


@pytest.fixture(scope="module")
def run():
    return read_run(RUN)


def test_the_docs_show_the_tables_of_the_results(run):
    assert stale_tables(DOCUMENT.read_text(), all_tables(run)) == []


def test_the_tables_beside_the_results_are_theirs(run):
    tables = all_tables(run)
    names = {path.stem for path in (RUN / "tables").iterdir()}
    assert names == {table.name for table in tables}
    for table in tables:
        for ending, render in (("md", markdown), ("csv", csv_text), ("tex", latex)):
            assert (RUN / "tables" / f"{table.name}.{ending}").read_text() == render(table)


def test_the_page_beside_the_results_is_theirs(run):
    assert (RUN / "report.html").read_text() == bench_page(run).html


def test_the_main_experiment_has_three_reporting_seeds_of_every_method(run):
    cells = {(r.stream, r.variant, r.seed) for r in run.of_kind("stream")}
    for stream in ("arithmetic", "openbookqa", "boolq"):
        for method in ("none", "ga", "rmu", "simnpo", "llm-eraser", "o3", "asu", "graddiff", "tfr"):
            assert {seed for s, v, seed in cells if (s, v) == (stream, method)} == {0, 1, 2}


def test_results_carry_their_origin_and_no_place_of_the_machine(run):
    for result in run.results:
        assert result.provenance["versions"]["torch"]
        assert result.provenance["commit"]
        assert "/" not in result.model["name"]


def test_no_words_of_a_dataset_are_published():
    assert not list(RUN.rglob("samples.jsonl"))


@needs_real
@pytest.mark.slow
def test_the_results_are_of_the_data_models_and_settings_that_are_here():
    plan = BenchPlan(("main", "ablation", "structure", "tofu"), preset=PUBLISHED)
    context = RunContext(plan, Machine(real_source(), "cpu"))
    found = {
        str(cell.key): CellFolder(RUN, cell.key).known_inputs() == former_inputs(context, cell)
        for cell in plan.cells()
        if cell.seed == 0 and CellFolder(RUN, cell.key).result.is_file()
    }
    assert len(found) > 40
    assert all(found.values()), [key for key, same in found.items() if not same]


# The results were filed before inputs covered whole files and what is measured beside a split.


def former_inputs(context: RunContext, cell: Cell) -> str:
    facts = context.facts(cell) | {"model": former_identity(context.plan.model_of(cell))}
    facts.pop("beside", None)
    if cell.kind == "tofu":
        stream = context.tofu
        rows = [*stream.authors, stream.kept, *stream.sets.values()]
        rows += [stream.members, stream.non_members]
        words = [[[r.question, r.answer, r.wrong_answers] for r in part] for part in rows]
        facts["data"] = hashlib.sha256(json.dumps(words).encode()).hexdigest()
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@cache
def former_identity(name: str) -> str:
    """Of an adapter on the default model: the sizes and both ends of its files."""
    folder = find_shipped(name)
    files = [folder / "adapter_model.safetensors", folder / "adapter_config.json"]
    return former_digest(files, former_digest([bundled_gguf().resolve()]))


def former_digest(files: list[Path], *more: str) -> str:
    digest, end = hashlib.sha256(" ".join(more).encode()), 1 << 20
    for file in files:
        data = file.read_bytes()
        digest.update(f"{file.name} {len(data)} ".encode() + data[:end] + data[-end:])
    return digest.hexdigest()
