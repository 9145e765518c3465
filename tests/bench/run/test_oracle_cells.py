"""What nobody asked to change, and the oracle, in the cells of a small bench."""

import json
import shutil
from dataclasses import replace

import pytest

from tests.bench.run.setting import SIZES, bench, make_machine, make_plan
from tfrnet.core.errors import InputError
from tfrnet.data.forgotten import forgotten_items
from tfrnet.data.protocol import make_split
from tfrnet.data.tasks import find_task
from tfrnet.evaluation.bystanders import TEXT, find_bystanders
from tfrnet_bench.results import read_run
from tfrnet_bench.run.preflight import Problems, check_oracles
from tfrnet_bench.tables.yardstick_table import yardstick_tables


def test_bystanders_are_in_no_part_of_the_split(tmp_path):
    source = make_machine(tmp_path).source
    split = make_split("boolq", 0, source, SIZES)
    found = find_bystanders(split, source, 8)
    used = {item.example() for items in split.parts().values() for item in items}
    assert set(found.witnesses) == {"boolq", "openbookqa", "arithmetic", TEXT}
    assert all(0 < len(examples) <= 8 for examples in found.witnesses.values())
    assert not used & {example for examples in found.witnesses.values() for example in examples}
    topics = {find_task("boolq").topic(item) for item in split.forget}
    assert found.siblings
    assert all(item.group in topics and item.example() not in used for item in found.siblings)
    assert list(found.prompts) == [item.prompt for item in split.forget[:8]]


@pytest.mark.slow
def test_a_cell_tells_of_bystanders_and_its_distance_to_the_oracle(tmp_path, tiny_folder):
    machine = make_machine(tmp_path)
    oracle = tmp_path / "oracle"
    shutil.copytree(tiny_folder, oracle)
    forgotten_items([0], machine.source, ("boolq",), SIZES).write(oracle)
    plan = make_plan(tiny_folder, streams=("boolq",), methods=("ga",), task_oracle=str(oracle))
    refuse_bad_oracles(plan, splits_of(plan, machine.source))
    bench(plan, machine, tmp_path / "out")
    cells = {
        name: json.loads((tmp_path / "out/cells/stream/boolq" / name / "0/result.json").read_text())
        for name in ("none", "ga", "oracle")
    }
    for cell in cells.values():
        assert len(cell["items"]["losses"]["after"]) == len(cell["items"]["said"]) == 6
        assert len(cell["forgetting"]["seen_loss"]) == 2
        assert "stood" not in json.dumps(cell)
    untouched = cells["none"]["bystanders"]
    assert untouched["witness"] == dict.fromkeys(untouched["witness"], 1.0)
    assert untouched["same_topic"]["before"] == untouched["same_topic"]["now"]
    assert untouched["fluency"].get("perplexity_ratio", 1.0) == pytest.approx(1.0)
    (table,) = yardstick_tables(read_run(tmp_path / "out"))
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    # Here the oracle is the same model, so the untouched one is at no distance from it.
    assert rows["untouched"]["Oracle: losses"] == "0.00"
    assert rows["untouched"]["Oracle: agreement"] == "100.0"
    assert rows["untouched"]["Witness"] == "1.00"
    assert rows["GA"]["Witness"] not in ("-", "")


def test_an_oracle_that_may_know_a_stream_is_refused_with_all_such_streams(tmp_path, tiny_folder):
    source = make_machine(tmp_path).source
    plan = make_plan(tiny_folder, streams=("boolq", "openbookqa"), task_oracle=str(tmp_path))
    splits = splits_of(plan, source)
    with pytest.raises(InputError, match="does not say what it was trained without"):
        refuse_bad_oracles(plan, splits)
    forgotten_items([0], source, ("boolq",), SIZES).write(tmp_path)
    with pytest.raises(InputError, match=r"forgotten: openbookqa with seed 0 \(6 of 6 items\);"):
        refuse_bad_oracles(plan, splits)
    other = replace(plan, seeds=(1,))
    with pytest.raises(InputError, match="it is no oracle of seed 1; it may have been trained on"):
        refuse_bad_oracles(other, splits_of(other, source))
    with pytest.raises(InputError, match=r"boolq with seed 1 \(\d of 6 items\), openbookqa with"):
        refuse_bad_oracles(other, splits_of(other, source))


def test_every_seed_without_its_own_oracle_is_named(tmp_path, tiny_folder):
    source = make_machine(tmp_path).source
    plan = make_plan(
        tiny_folder,
        streams=("boolq",),
        seeds=(0, 1, 2),
        task_oracle=str(tmp_path / "oracle-{seed}"),
    )
    (tmp_path / "oracle-1").mkdir()
    forgotten_items([1], source, ("boolq",), SIZES).write(tmp_path / "oracle-1")
    splits = splits_of(plan, source)
    with pytest.raises(InputError, match=r"\(1\) oracle .*oracle-0: .*\(2\) .*oracle-2: "):
        refuse_bad_oracles(plan, splits)
    one = replace(plan, seeds=(1,))
    refuse_bad_oracles(one, splits_of(one, source))
    assert plan.models()[1:] == [str(tmp_path / f"oracle-{seed}") for seed in range(3)]


def refuse_bad_oracles(plan, splits):
    problems = Problems()
    check_oracles(plan, splits, problems)
    problems.refuse()


def splits_of(plan, source):
    return {
        (stream, seed): make_split(stream, seed, source, plan.sizes)
        for stream in plan.streams
        for seed in plan.seeds
    }
