"""The grid: which cells there are, and what is refused before any of them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.run.setting import make_machine, make_plan
from tfrnet.core.errors import InputError
from tfrnet.method import find_method, method_names
from tfrnet_bench.constants import TASK_ORACLE
from tfrnet_bench.run.plan import EXPERIMENTS, BenchPlan, TofuSizes
from tfrnet_bench.run.preflight import check_everything
from tfrnet_bench.run.quick import QUICK


def test_the_main_table_has_every_method_stream_and_seed_and_the_controls():
    cells = BenchPlan(("main",)).cells()
    labels = {*method_names(), "none", "tfr-paper"}
    assert {str(cell.key) for cell in cells} == {
        f"stream/{stream}/{label}/{seed}"
        for stream in ("arithmetic", "openbookqa", "boolq")
        for label in labels
        for seed in (0, 1, 2)
    }


def test_experiments_share_their_cells():
    plan = BenchPlan(EXPERIMENTS)
    keys = [cell.key for cell in plan.cells()]
    assert len(keys) == len(set(keys))
    for name in ("main", "ablation", "structure"):
        assert "stream/boolq/tfr/0" in {str(cell.key) for cell in BenchPlan((name,)).cells()}
    # A run that is cut short has whole seeds.
    assert [cell.seed for cell in plan.cells()] == sorted(cell.seed for cell in plan.cells())


def test_an_ablation_differs_in_one_switch():
    plan = BenchPlan(("ablation", "structure"))
    variants = {cell.variant.label: plan.settings(cell.variant) for cell in plan.cells()}
    whole = variants.pop("tfr").to_dict()
    assert set(variants) == {
        "tfr-no-recovery",
        "tfr-no-retain",
        "tfr-no-history",
        "tfr-no-guard",
        "tfr-no-suppression",
    }
    for settings in variants.values():
        changed = [name for name, value in settings.to_dict().items() if value != whole[name]]
        assert len(changed) == 1


def test_what_cannot_be_exported_is_not_attacked():
    labels = {cell.variant.label for cell in BenchPlan(("robust",)).cells()}
    assert labels == set(method_names()) - {"o3"}


def test_a_method_that_was_never_tuned_runs_with_its_defaults(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(find_method("ga").config_class, "tuned", {})
    variants = {cell.variant.label: cell.variant for cell in BenchPlan(("main",)).cells()}
    assert variants["ga"].preset == "default"
    assert variants["npo"].preset == "tuned"


def test_every_experiment_has_its_own_oracle_or_none():
    streams = ("boolq", "arithmetic")
    plan = BenchPlan(
        ("main", "lume", "knowundo"),
        streams=streams,
        seeds=(3, 4),
        task_oracle="tasks",
        knowundo_oracle="{stream}-{seed}",
    )
    own = {("knowundo", seed): f"knowundo-{seed}" for seed in (3, 4)}
    assert plan.oracles() == own | {(s, seed): "tasks" for s in streams for seed in (3, 4)}
    cells = [cell for cell in plan.cells() if cell.variant.label == TASK_ORACLE]
    assert {(cell.stream, cell.seed): plan.model_of(cell) for cell in cells} == plan.oracles()


def test_checkpoints_are_the_quarters_of_a_stream():
    assert BenchPlan(("main",)).checkpoints == (5, 10, 15, 20)
    assert BenchPlan(("main",), **QUICK).checkpoints == (1, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"experiments": ("nope",)}, "unknown experiment 'nope'"),
        ({"streams": ("tofu",)}, "unknown task 'tofu'; choose from arithmetic"),
        ({"seeds": (1000,)}, "seed 1000 cannot be reported"),
        ({"seeds": (-1,)}, "seed -1"),
        ({"seeds": ()}, "seeds is empty"),
        ({"methods": ("nope",)}, "unknown method 'nope'"),
        ({"preset": "paper"}, "asu has no preset 'paper'"),
    ],
)
def test_impossible_plans_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        BenchPlan(**({"experiments": ("main",)} | changes))


def test_everything_that_is_missing_is_named_at_once(tmp_path: Path, tiny_folder: Path):
    machine = make_machine(tmp_path)
    check_everything(make_plan(tiny_folder, experiments=("main", "tofu")), machine.source)
    (machine.source.folder / "arithmetic" / "two_digit_addition.jsonl").unlink()
    (machine.source.folder / "tofu" / "holdout10.jsonl").unlink()
    plan = make_plan(
        tiny_folder, experiments=("main", "tofu"), oracle=str(tmp_path / "no-such-oracle")
    )
    with pytest.raises(InputError) as caught:
        check_everything(plan, machine.source)
    text = str(caught.value)
    assert text.startswith("3 things are missing")
    assert "two_digit_addition" in text
    assert "holdout10" in text
    assert "no-such-oracle" in text


def test_what_does_not_fit_is_refused_with_all_of_it(tmp_path: Path, tiny_folder: Path):
    """A template that is lacking, sets that overlap, an oracle that knows what is forgotten."""
    machine = make_machine(tmp_path)
    data = machine.source.folder / "tofu"
    lines = (data / "forget10.jsonl").read_text().splitlines()
    (data / "retain90.jsonl").open("a").write("\n".join(lines[:3]) + "\n")
    (data / "holdout10.jsonl").open("a").write(lines[0] + "\n")
    oracle = tmp_path / "oracle"
    shutil.copytree(tiny_folder, oracle)
    (oracle / "training.json").write_text('{"recipe": "smollm2-tofu-chat-retain95"}')
    sizes = replace(make_plan(tiny_folder).tofu, template="chat")
    plan = make_plan(tiny_folder, experiments=("tofu",), oracle=str(oracle), tofu=sizes)
    with pytest.raises(InputError) as caught:
        check_everything(plan, machine.source)
    text = str(caught.value)
    assert text.startswith("4 things are missing or wrong")
    assert "forget10 and retain90 share 3, forget10 and holdout10 share 1" in text
    assert "it was trained on TOFU's retain95, which has authors of forget10 in it" in text
    assert text.count("the tokenizer has no chat template") == 2


def test_the_smaller_forget_sets_have_fewer_authors():
    sizes = TofuSizes().on("05", "chat")
    assert (sizes.requests, sizes.options.files()["forget"]) == (10, "forget05_perturbed")
    assert sizes.options.membership_files() == ("forget05_perturbed", "holdout05")
    # What was measured before these options came is filed as it was.
    assert TofuSizes().filed_under().keys() == {
        *("requests", "retain", "guard", "rows", "new_tokens")
    }
    assert TofuSizes(template="chat").filed_under()["template"] == "chat"
    with pytest.raises(InputError, match="one of 01, 05, 10"):
        TofuSizes().on("20", "qa")
