"""LUME and KnowUnDo as experiments; of LUME's real people not a word is written anywhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.bench.run.setting import bench, make_machine, make_plan
from tests.datasets import SECRET
from tests.integration.commands import run_main
from tfrnet.core.errors import InputError
from tfrnet.data.forgotten import forgotten_items
from tfrnet.data.protocol import Sizes
from tfrnet.data.tasks.knowundo import KnowUnDo
from tfrnet.data.tasks.lume import Lume
from tfrnet.models.finetune import FinetuneOptions
from tfrnet.models.load import load_model
from tfrnet_bench.backbones import train
from tfrnet_bench.backbones.recipes import find_recipe
from tfrnet_bench.honest import measured
from tfrnet_bench.outputs import write_outputs
from tfrnet_bench.results import read_run
from tfrnet_bench.run.context import RunContext
from tfrnet_bench.run.preflight import check_everything
from tfrnet_bench.tables.yardstick_table import yardstick_tables

SIZES = Sizes(requests=2, request_size=3, forget_eval=5, heldout=8, retain=(12, 4), guard=(6, 2))
FAST = FinetuneOptions(rank=2, epochs=1, batch_size=4, learning_rate=1e-2)


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> tuple[Path, list[str]]:
    """A run of both experiments with one method, and all that was told of it."""
    folder = tmp_path_factory.mktemp("bench")
    patch = pytest.MonkeyPatch()
    for task in (Lume, KnowUnDo):
        patch.setattr(task, "new_tokens", 8)  # a random model never stops by itself
    machine = make_machine(folder)
    for stream in ("lume", "knowundo"):
        oracle = shutil.copytree(tiny_folder, folder / f"{stream}-oracle")
        forgotten_items([0], machine.source, (stream,), SIZES).write(oracle)
    plan = make_plan(
        tiny_folder,
        experiments=("lume", "knowundo"),
        methods=("ga",),
        sizes=SIZES,
        lume_model=str(tiny_folder),
        knowundo_model=str(tiny_folder),
        lume_oracle=str(folder / "lume-oracle"),
        knowundo_oracle=str(folder / "{stream}-oracle"),
    )
    check_everything(plan, machine.source)
    tally, events = bench(plan, machine, folder / "out")
    assert not tally.failed
    write_outputs(folder / "out")
    patch.undo()
    return folder / "out", [f"{event.key} {event.text}" for event in events]


def result(out: Path, stream: str, variant: str) -> dict:
    return json.loads((out / f"cells/stream/{stream}/{variant}/0/result.json").read_text())


def test_the_published_scores_are_told_before_and_after(ran):
    out, _ = ran
    for variant in ("none", "ga"):
        lume = result(out, "lume", variant)["published"]
        assert set(lume) == {"before", "after"}
        assert set(lume["after"]) == {"forget", "retain", "stories", "real"}
        assert set(lume["after"]["forget"]) == {"regurgitation", "knowledge"}
        known = result(out, "knowundo", variant)["published"]["after"]
        assert set(known) == {"unlearn", "retention"}
        assert 0 <= known["unlearn"]["unlearn_success"] <= 100
    untouched = result(out, "lume", "none")["published"]
    assert untouched["before"] == untouched["after"]
    assert len(result(out, "lume", "ga")["requests"]) == 2
    for stream, title in (("lume", "Task aggregate"), ("knowundo", "Unlearn success")):
        assert title in (out / f"tables/published-{stream}.md").read_text()
    assert "KnowUnDo by its own scores" in (out / "report.html").read_text()


def test_each_stream_is_compared_with_its_own_oracle(ran):
    out, _ = ran
    run = read_run(out)
    for stream in ("lume", "knowundo"):
        assert result(out, stream, "oracle")["model"]["name"].endswith(f"{stream}-oracle")
        # Here the oracle is the same model as the untouched one.
        assert measured(run, stream, "none", "oracle_losses").numbers == [0.0]
        assert measured(run, stream, "none", "oracle_agreement").numbers == [100.0]
        assert measured(run, stream, "ga", "oracle_losses").numbers[0] > 0
    (table,) = yardstick_tables(run)
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert rows["untouched"]["Oracle: losses"] == "0.00"


def test_a_result_says_how_many_examples_its_requests_have(ran):
    for stream in ("lume", "knowundo"):
        assert result(ran[0], stream, "ga")["protocol"]["request_size"] == 6


def test_a_file_of_the_published_scores_that_is_missing_is_named_before_the_first_cell(
    tmp_path, tiny_folder
):
    machine = make_machine(tmp_path)
    plan = make_plan(
        tiny_folder, experiments=("knowundo",), sizes=SIZES, knowundo_model=str(tiny_folder)
    )
    check_everything(plan, machine.source)
    (machine.source.folder / "knowundo" / "unlearn_val.json").unlink()
    with pytest.raises(InputError, match=r"unlearn_val\.json"):
        check_everything(plan, machine.source)


def test_a_cell_that_was_measured_with_another_length_is_not_kept(tmp_path, tiny_folder):
    models = {"lume_model": str(tiny_folder), "knowundo_model": str(tiny_folder)}
    plan = make_plan(
        tiny_folder, experiments=("lume", "knowundo"), methods=("ga",), sizes=SIZES, **models
    )
    context = RunContext(plan, make_machine(tmp_path))

    def digests() -> dict[str, str]:
        return {cell.stream: context.inputs(cell) for cell in plan.cells()}

    before = digests()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lume, "max_length", 300)
        after = digests()
    assert after["lume"] != before["lume"]
    assert after["knowundo"] == before["knowundo"]


def test_a_result_quotes_no_answer(ran):
    out, _ = ran
    for stream in ("lume", "knowundo"):
        assert result(out, stream, "ga")["answers"] == []
        assert "me.com" not in json.dumps(result(out, stream, "ga"))


def test_no_file_and_no_message_has_a_word_of_the_real_people(ran):
    out, told = ran
    files = [path for path in out.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    assert SECRET not in " ".join(told)


def test_eval_measures_the_real_people_and_writes_no_word(ran, tiny_folder, tmp_path, capfd):
    data, samples = ran[0].parent / "data", tmp_path / "samples.jsonl"
    command = ["eval", "--model", tiny_folder, "--data-dir", data, "--samples", samples]
    command += ["--tasks", "lume:real,lume:stories+forget", "--limit", 3]
    assert run_main((*command, "--json")) == 0
    told = capfd.readouterr()
    assert SECRET not in told.out + told.err
    real, stories = json.loads(told.out)["results"]
    assert real["n"] == 3
    assert {*real["published"], *stories["published"]} == {"regurgitation", "knowledge"}
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    assert SECRET not in samples.read_text()
    assert ["generated" in row for row in rows] == [False] * 3 + [True] * 3
    assert run_main(tuple(command)) == 0
    told = capfd.readouterr()
    assert SECRET not in told.out + told.err
    assert "regurgitation" in told.out


@pytest.mark.parametrize("name", ["smollm2-lume", "smollm2-knowundo"])
def test_a_recipe_trains_and_its_oracle_leaves_out_what_a_seed_forgets(
    name, ran, tiny_folder, tmp_path
):
    source = make_machine(ran[0].parent).source
    recipe = find_recipe(name)
    without = forgotten_items([0], source, recipe.streams, SIZES)
    assert len(without.digests) == 12
    loaded = load_model(str(tiny_folder))
    items = recipe.items(source, loaded.tokenizer)
    assert len(items) - len(without.left_out(items)) == 12
    assert SECRET not in " ".join(item.example().joined for item in items)
    prepared = train.train(recipe, loaded, source, FAST, limit=6, without=without)
    train.save_adapter(prepared, tmp_path / "oracle")
    card = (tmp_path / "oracle" / "README.md").read_text()
    assert f"tfrnet prepare --recipe {name}" in card
    assert "12 items were left out" in card
