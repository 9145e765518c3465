"""What a cell's inputs cover: whatever its result depends on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench.run.setting import bench, make_machine, make_plan
from tfrnet.data.tasks.lume import Lume
from tfrnet.data.tofu import TofuRow
from tfrnet.evaluation.bystanders import TEXT
from tfrnet_bench.machine import Machine
from tfrnet_bench.run import robust_cell
from tfrnet_bench.run.context import RunContext
from tfrnet_bench.run.plan import BenchPlan, TofuSizes
from tfrnet_bench.run.tofu_stream import make_tofu_stream

Change = Callable[[str], str]


def test_every_word_of_a_tofu_row_counts_and_its_place_does_not(tmp_path: Path):
    stream = make_tofu_stream(make_machine(tmp_path).source, TofuSizes(1, 8, 4, 4, 4))
    (name, rows), *others = stream.sets.items()

    def digest(**changed: Any) -> str:
        first = replace(rows[0], **changed)
        return replace(stream, sets={name: [first, *rows[1:]], **dict(others)}).digest

    found = {digest(), digest(number=99)}
    assert found == {stream.digest}
    names = [item.name for item in fields(TofuRow) if item.name != "number"]
    for field in names:
        found.add(digest(**{field: ("other",) if field == "wrong_answers" else "other"}))
    assert len(found) == len(names) + 1 == 6


def inputs(plan: BenchPlan, machine: Machine) -> dict[str, str]:
    context = RunContext(plan, machine)
    return {f"{cell.kind}/{cell.stream}": context.inputs(cell) for cell in plan.cells()}


def rewrite(file: Path, change: Change) -> None:
    text = file.read_text()
    file.write_text(change(text))
    assert file.read_text() != text


def test_what_is_measured_beside_the_split_counts(tmp_path: Path, tiny_folder: Path):
    machine = make_machine(tmp_path)
    plan = make_plan(tiny_folder, experiments=("main", "robust"), methods=("ga",))
    context = RunContext(plan, machine)
    split, beside = (get("arithmetic", 0) for get in (context.split, context.bystanders))
    before = inputs(plan, machine)
    assert inputs(plan, machine) == before
    used = {item.prompt for items in split.parts().values() for item in items}
    stem = next(e.prompt for e in beside.witnesses["openbookqa"] if e.prompt not in used)
    assert TEXT in beside.witnesses
    rewrite(
        machine.source.folder / "openbookqa" / "train.jsonl",
        lambda text: text.replace(json.dumps(stem)[1:-1] + '"', json.dumps(stem)[1:-1] + ' old"'),
    )
    after = inputs(plan, machine)
    assert after["stream/arithmetic"] != before["stream/arithmetic"]
    # Under attack no bystander is measured.
    assert after["robust/arithmetic"] == before["robust/arithmetic"]


@pytest.mark.parametrize(
    ("stream", "file", "word"),
    [
        ("lume", "lume/retain.jsonl", "Task1"),
        ("lume", "lume/retain.jsonl", "Task3"),
        ("knowundo", "knowundo/unlearn_val.json", "labels"),
    ],
)
def test_the_sets_of_published_scores_count(
    tmp_path: Path, tiny_folder: Path, stream: str, file: str, word: str
):
    machine = make_machine(tmp_path)
    models = {"lume_model": str(tiny_folder), "knowundo_model": str(tiny_folder)}
    plan = make_plan(tiny_folder, experiments=(stream,), methods=("ga",), **models)
    split = RunContext(plan, machine).split(stream, 0)
    before = inputs(plan, machine)
    rewrite(machine.source.folder / file, lambda text: _with_other_answers(text, word))
    context = RunContext(plan, machine)
    assert {i.digest for i in split.forget} == {i.digest for i in context.split(stream, 0).forget}
    assert inputs(plan, machine) != before


def _with_other_answers(text: str, word: str) -> str:
    """Change the answers of a file's rows, in LUME's form those of one part."""
    if word == "labels":
        rows = [row | {"labels": row["labels"] + " Or so."} for row in json.loads(text)]
        return json.dumps(rows)
    lines = [json.loads(line) for line in text.splitlines()]
    changed = [r | {"output": r["output"] + " or so"} if r["task"] == word else r for r in lines]
    return "".join(json.dumps(row) + "\n" for row in changed)


def attacking(tiny_folder: Path, stream: str) -> BenchPlan:
    return make_plan(
        tiny_folder,
        experiments=("robust",),
        methods=("ga",),
        streams=(stream,),
        lume_model=str(tiny_folder),
    )


@pytest.mark.parametrize(("stream", "length"), [("lume", 512), ("arithmetic", 256)])
def test_how_many_tokens_attacks_read_counts(
    tmp_path: Path, tiny_folder: Path, stream: str, length: int
):
    plan = attacking(tiny_folder, stream)
    (cell,) = plan.cells()
    facts = RunContext(plan, make_machine(tmp_path)).facts(cell)
    assert facts["attack"]["max_length"] == length


@pytest.mark.slow
def test_attacks_read_as_many_tokens_as_the_task_does(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    lengths: list[int] = []

    def attacked(subject, names, report):
        lengths.append(subject.options.max_length)
        return []

    monkeypatch.setattr(Lume, "new_tokens", 4)  # a random model never stops by itself
    monkeypatch.setattr(robust_cell, "run_attacks", attacked)
    monkeypatch.setattr(robust_cell, "relearning_figures", lambda rows: {})
    tally, _ = bench(attacking(tiny_folder, "lume"), make_machine(tmp_path), tmp_path / "out")
    assert not tally.failed
    assert lengths == [512]
    (place,) = (tmp_path / "out").rglob("result.json")
    assert json.loads(place.read_text())["protocol"]["attack"]["max_length"] == 512
