"""`tfrnet split` and `tfrnet eval` from end to end: text, JSON, files, cache and bad input."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp
from transformers import AutoModelForCausalLM

from tests import tiny
from tests.evaluation.reference import answer_log_probs, watch_passes
from tests.integration.commands import NOWHERE, SMALL, TOFU, Tfrnet, evaluated, run_main
from tfrnet.data.protocol import Sizes, make_split
from tfrnet.data.requests import read_examples, read_requests
from tfrnet.data.sources import Source
from tfrnet.data.split_files import read_split
from tfrnet.data.tasks import find_task
from tfrnet.data.tofu import load_tofu
from tfrnet.evaluation.attacks import rescale
from tfrnet.evaluation.plan import Options, make_plan
from tfrnet.masking.digest import model_digest
from tfrnet.method_state import apply_state

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture(scope="module")
def short_spoken(tokenizer, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two models that end their texts soon."""
    folders = []
    for seed in (0, 1):
        model = tiny.make_model(seed=seed)
        with torch.no_grad():
            model.lm_head.weight[0] *= 8
        folders.append(tmp_path_factory.mktemp(f"short-{seed}"))
        model.save_pretrained(folders[-1])
        tokenizer.save_pretrained(folders[-1])
    return folders


# split


def test_split_writes_a_stream_that_eval_finds_again(
    tfrnet: Tfrnet, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "stream"
    options = ["--task", "boolq", "--out", out, "--seed", 3, "--data-dir", data, *SMALL]
    result = tfrnet("split", *options, "--groups")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == f"{out}: 3 requests of 2, task boolq, seed 3"
    files = f"--stream {out}/requests.jsonl --retain {out}/retain.jsonl --guard {out}/guard.jsonl"
    assert lines[-1] == f"next: tfrnet run {files}"
    source = Source("folder", data)
    sizes = Sizes(requests=3, request_size=2, forget_eval=5, heldout=5)
    expected = make_split("boolq", 3, source, sizes)
    assert read_split(out, source) == expected
    assert read_requests(out / "requests.jsonl") == expected.requests()
    assert read_examples(out / "retain.jsonl") == expected.retain_examples()
    assert read_examples(out / "guard.jsonl") == expected.guard_examples()
    groups = {example.group for example in read_examples(out / "guard.jsonl")}
    assert groups == {"arithmetic", "boolq", "openbookqa"}
    for name, items in expected.parts().items():
        assert any(line.split() == [name, str(len(items))] for line in lines)


def test_how_much_is_kept_and_guarded_can_be_chosen(
    tfrnet: Tfrnet, data: Path, tmp_path: Path
) -> None:
    options = ["--task", "boolq", "--out", tmp_path / "s", "--data-dir", data, *SMALL]
    parts = tfrnet("split", *options, "--retain", 11, "--guard", 4, "--json").json["parts"]
    assert (parts["retain/boolq"], parts["retain/arithmetic"]) == (11, 6)
    assert (parts["guard/boolq"], parts["guard/openbookqa"]) == (4, 2)
    assert len((tmp_path / "s" / "retain.jsonl").read_text().splitlines()) == 11 + 6 + 6


def test_split_as_json(tfrnet: Tfrnet, data: Path, tmp_path: Path) -> None:
    options = ["--task", "arithmetic", "--out", tmp_path / "s", "--data-dir", data, *SMALL]
    values = tfrnet("split", *options, "--json").json
    assert values["schema"] == "tfrnet.split/1"
    assert (values["task"], values["seed"], values["out"]) == ("arithmetic", 0, str(tmp_path / "s"))
    assert values["parts"]["forget"] == 6
    assert values["parts"]["forget_eval"] == values["parts"]["heldout/boolq"] == 5
    again = tfrnet("split", *options)
    assert again.code == 2
    assert "exists already and is not empty" in again.error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--task", "tofu"], "unknown task 'tofu'; choose from arithmetic, boolq, knowundo"),
        (
            ["--task", "boolq", *SMALL, "--requests", 999],
            "boolq has 300 unrelated items, but the split needs 1998 forgotten + 240 kept + "
            "32 guarded; ask for fewer (split: --requests, --request-size, --retain or --guard)",
        ),
        (["--task", "boolq", "--evaluated", 9999], "cannot evaluate 9999 of the 160"),
        (
            ["--task", "boolq"],
            "boolq has 98 unrelated items, but the split needs 100 held out; ask for fewer "
            "(split: --evaluated)",
        ),
        (["--task", "boolq", "--retain", 0], "--retain"),
        (["--task", "boolq", "--requests", 0], "requests"),
        (["--task", "boolq", "--source", "web"], "unknown source 'web'"),
        (
            ["--task", "boolq", "--source", "generated"],
            "source generated reads nothing from the data folder",
        ),
        (["--task", "boolq", "--data-dir", "nowhere"], "the data folder nowhere does not exist"),
        ([], "--task"),
    ],
)
def test_a_split_that_cannot_be_is_one_line(
    tfrnet: Tfrnet, data: Path, tmp_path: Path, options: list[object], message: str
) -> None:
    result = tfrnet("split", "--out", tmp_path / "s", "--data-dir", data, *options)
    assert (result.code, result.out) == (2, "")
    assert message in result.error
    assert not (tmp_path / "s").exists()


# eval: tasks


THREE = ["--tasks", "boolq,openbookqa,arithmetic", "--limit", 6, "--items", "first"]


def test_eval_as_json(tfrnet: Tfrnet, data: Path, tiny_folder: Path) -> None:
    result = tfrnet(*evaluated(data, tiny_folder, *THREE, "--json"))
    assert (result.code, result.err) == (0, "")
    values = result.json
    assert values["schema"] == "tfrnet.eval/1"
    assert values["model"] == str(tiny_folder)
    assert (values["state"], values["oracle"], values["split"]) == (None, None, None)
    assert values["missing"] == []
    assert values["cached"] == 0
    assert {"tfrnet", "torch", "transformers"} <= set(values["versions"])
    assert values["options"]["limit"] == 6
    assert values["options"]["tasks"] == ["boolq", "openbookqa", "arithmetic"]
    model = AutoModelForCausalLM.from_pretrained(tiny_folder).eval()
    assert values["model_digest"] == model_digest(model)
    boolq, obqa, sums = values["results"]
    assert [(r["task"], r["part"], r["n"]) for r in values["results"]] == [
        ("boolq", "validation", 6),
        ("openbookqa", "test", 6),
        ("arithmetic", "validation", 6),
    ]
    assert (boolq["metric"], obqa["metric"], sums["metric"]) == ("acc", "acc_norm", "exact")
    assert boolq["floors"] == {"always yes": 50.0, "random": 50.0}
    assert set(obqa["floors"]) == {"longest choice", "random"}
    assert sums["floors"] == {"random": 0.0}
    assert set(sums["metrics"]) == {"exact", "strict", "greedy"}
    assert sum(boolq["chosen"].values()) == 6
    for name, found in (("boolq", boolq), ("openbookqa", obqa)):
        right = ranked(model, data, name, 6)
        for metric, values_ in right.items():
            assert found["metrics"][metric]["value"] == pytest.approx(100 * np.mean(values_))
            error = 100 * np.std(values_, ddof=1) / math.sqrt(6)
            assert found["metrics"][metric]["stderr"] == pytest.approx(error)


def ranked(model, data: Path, name: str, count: int) -> dict[str, list[bool]]:
    """Rank the first items of a task, one pass for each candidate."""
    task, tokenizer = find_task(name), tiny.make_tokenizer()
    right: dict[str, list[bool]] = {"acc": [], "acc_norm": []}
    for item in task.load(task.evaluation, Source("folder", data))[:count]:
        start = len(tokenizer(item.prompt)["input_ids"])
        totals = [
            sum(answer_log_probs(model, tokenizer(f"{item.prompt} {choice}")["input_ids"], start))
            for choice in item.choices
        ]
        per_character = [t / len(c) for t, c in zip(totals, item.choices, strict=True)]
        gold = item.choices.index(item.answer)
        right["acc"].append(int(np.argmax(totals)) == gold)
        right["acc_norm"].append(int(np.argmax(per_character)) == gold)
    return right


def test_eval_for_a_person(tfrnet: Tfrnet, data: Path, tiny_folder: Path) -> None:
    result = tfrnet(*evaluated(data, tiny_folder, *THREE))
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    values = tfrnet(*evaluated(data, tiny_folder, *THREE, "--json")).json["results"]
    for found in values:
        assert f"{found['task']}, {found['part']}, 6 items" in lines
        for name, measure in found["metrics"].items():
            star = "*" if name == found["metric"] else " "
            shown = f" {star}{name:<20}{measure['value']:6.1f} % ± {measure['stderr']:.1f}"
            assert shown in lines
        for name, value in found["floors"].items():
            assert f"  floor: {name:<13}{value:6.1f} %" in lines
    assert sum(line.startswith("  balanced") for line in lines) == 1
    assert sum(line.startswith("  times chosen: ") for line in lines) == 2
    assert not any("truncated" in line for line in lines)


def test_truncated_items_are_counted(tfrnet: Tfrnet, data: Path, tiny_folder: Path) -> None:
    tasks = ["--tasks", "boolq", "--limit", 3, "--max-length", 90]
    result = tfrnet(*evaluated(data, tiny_folder, *tasks))
    assert "  truncated: 3 items" in result.out.splitlines()


def test_samples_are_written_on_request(
    tfrnet: Tfrnet, data: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "samples.jsonl"
    values = tfrnet(*evaluated(data, tiny_folder, *THREE, "--samples", path, "--json")).json
    samples = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(samples) == 18
    for found in values["results"]:
        own = [s for s in samples if (s["task"], s["part"]) == (found["task"], found["part"])]
        assert [s["key"].split("/")[-1] for s in own][:1] == ["0"]
        assert len(own) == len({s["key"] for s in own}) == 6
        for metric, measure in found["metrics"].items():
            assert measure["value"] == pytest.approx(100 * np.mean([s[metric] for s in own]))
        assert all(s["correct"] == s[found["metric"]] for s in own)
        assert all(s["loss"] > 0 for s in own)


def test_the_data_folder_may_be_named_by_the_environment(
    tfrnet: Tfrnet, data: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFRNET_DATA", str(data))
    options = ["--model", tiny_folder, "--tasks", "boolq", "--limit", 2, "--json"]
    assert tfrnet("eval", *options).json["results"][0]["n"] == 2


def test_arithmetic_needs_no_data(tfrnet: Tfrnet, tiny_folder: Path) -> None:
    options = ["--model", tiny_folder, "--tasks", "arithmetic:2da+2dm", "--limit", 2, "--json"]
    (found,) = tfrnet("eval", *options).json["results"]
    assert (found["task"], found["n"]) == ("arithmetic", 2)


# The cache


def without_time(values: dict) -> dict:
    return {k: v for k, v in values.items() if k not in ("seconds", "cached")}


def test_a_second_run_is_the_same_ranks_without_the_model_and_says_so(
    tfrnet: Tfrnet, data: Path, tiny_folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = evaluated(data, tiny_folder, *THREE, "--json")
    passes = watch_passes(monkeypatch)
    first = tfrnet(*command).json
    assert passes
    kept = sorted(path.name for path in cache.iterdir())
    passes.clear()
    second = tfrnet(*command).json
    assert without_time(second) == without_time(first)
    # Two rankings and a scoring. Arithmetic also generates, and replies are never kept.
    assert (first["cached"], second["cached"], len(kept)) == (0, 3, 3)
    assert sorted(path.name for path in cache.iterdir()) == kept
    passes.clear()
    ranked = evaluated(data, tiny_folder, "--tasks", "boolq,openbookqa", *THREE[2:], "--json")
    assert (tfrnet(*ranked).json["cached"], passes) == (2, [])


def test_no_cache_neither_uses_nor_keeps(
    tfrnet: Tfrnet, data: Path, tiny_folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = evaluated(data, tiny_folder, "--tasks", "boolq", "--limit", 3, "--json")
    fresh = tfrnet(*command, "--no-cache").json
    assert not cache.exists()
    tfrnet(*command)
    passes = watch_passes(monkeypatch)
    again = tfrnet(*command, "--no-cache").json
    assert passes
    assert (fresh["cached"], again["cached"]) == (0, 0)
    assert without_time(again) == without_time(fresh)


def test_a_damaged_or_unusable_cache_is_no_error(
    tfrnet: Tfrnet, data: Path, tiny_folder: Path, cache: Path
) -> None:
    command = evaluated(data, tiny_folder, "--tasks", "boolq", "--limit", 3, "--json")
    first = tfrnet(*command).json
    for path in cache.iterdir():
        path.write_bytes(path.read_bytes()[:-40])
    assert without_time(tfrnet(*command).json) == without_time(first)
    shutil.rmtree(cache)
    cache.write_text("a file where the folder should be")
    again = tfrnet(*command)
    assert (again.code, again.err) == (0, "")
    assert without_time(again.json) == without_time(first)


# States and splits


@pytest.mark.slow
def test_a_split_is_measured_with_the_mask_of_a_state(
    tfrnet: Tfrnet, data: Path, tiny_folder: Path, split: Path, state: Path, tmp_path: Path
) -> None:
    path = tmp_path / "samples.jsonl"
    options = ["--split", split, "--tasks", "openbookqa,boolq", "--json", "--samples", path]
    plain = tfrnet(*evaluated(data, tiny_folder, *options)).json
    parts = [(found["task"], found["part"], found["n"]) for found in plain["results"]]
    assert parts == [
        ("openbookqa", "forget", 5),
        ("openbookqa", "heldout", 5),
        ("boolq", "heldout", 5),
    ]
    before = path.read_text()
    # The state knows its model.
    masked = tfrnet("eval", "--data-dir", data, "--state", state, *options).json
    assert masked["model"] == str(tiny_folder)
    assert masked["cached"] == 0
    assert masked["state"]["folder"] == str(state)
    assert masked["state"]["generation"] >= 1
    model = AutoModelForCausalLM.from_pretrained(tiny_folder).eval()
    assert plain["model_digest"] == model_digest(model)
    with apply_state(model, state):
        assert masked["model_digest"] == model_digest(model) != plain["model_digest"]
        source = Source("folder", data)
        item = read_split(split, source).heldout["boolq"][0]
        tokenizer = tiny.make_tokenizer()
        ids = tokenizer(f"{item.prompt} no")["input_ids"]
        start = len(tokenizer(item.prompt)["input_ids"])
        expected = sum(answer_log_probs(model, ids, start))
    after = path.read_text()
    assert after != before
    samples = [json.loads(line) for line in after.splitlines()]
    (sample,) = [s for s in samples if s["key"] == item.key]
    assert sample["log_likelihoods"][0] == pytest.approx(expected, abs=1e-4)
    # Generation 0 has a mask of ones: it is the model itself, and known already.
    first = tfrnet("eval", "--data-dir", data, "--state", state, "--generation", 0, *options).json
    assert (first["state"]["generation"], first["cached"]) == (0, 3)
    assert first["results"] == plain["results"]
    assert first["model_digest"] == plain["model_digest"]
    assert path.read_text() == before


def test_robustness_for_a_program_and_a_person(
    tfrnet: Tfrnet, data: Path, split: Path, state: Path
) -> None:
    options = ["--split", split, "--state", state, "--tasks", "robustness", "--limit", 2]
    command = ["eval", "--data-dir", data, *options, "--relearn-seeds", 1]
    values = tfrnet(*command, "--attacks", "unmask,rescale", "--json").json
    (found,) = values["results"]
    assert (found["task"], found["forget_task"], found["n"]) == ("robustness", "openbookqa", 2)
    first = found["attacks"][0]
    assert first["attacked"] == first["untouched"]
    variants = [(row["attack"], row["variant"]) for row in found["attacks"]]
    assert variants == [("unmask", "all masks at 1"), ("rescale", "soft"), ("rescale", "hardened")]
    result = tfrnet(*command, "--attacks", "relearn,unmask", "--relearn-steps", "0,1")
    assert (result.code, result.err) == (0, "")
    title, head, *rows, forgotten, benign = result.out.splitlines()
    assert title == "robustness, accuracy on 2 forgotten items of openbookqa"
    assert head.split() == ["attack", "plain", "attacked", "untouched", "attacked", "recovery"]
    assert [" ".join(row.split()[:4]) for row in rows] == [
        *(f"relearn {kind}, {n} steps" for kind in ("forgotten", "benign") for n in (0, 1)),
        "unmask all masks at",
    ]
    plain, untouched = (f"{first[name]:.1f}" for name in ("plain", "untouched"))
    assert rows[0].split()[4:6] == [plain, plain]
    assert rows[-1].split()[5:8] == [plain, untouched, untouched]
    assert forgotten.startswith("  relearning, forgotten: area between the curves")
    assert benign.startswith("  relearning, benign: area between the curves")


def test_attacks_take_channels_for_dormant_as_the_state_does(
    tfrnet: Tfrnet,
    data: Path,
    split: Path,
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = state_of("tfr", split, tiny_folder, tmp_path, "dormant_threshold=0.3")
    thresholds = []

    def harden(values: torch.Tensor, threshold: float) -> torch.Tensor:
        thresholds.append(threshold)
        return values

    monkeypatch.setattr(rescale, "harden", harden)
    options = ["--split", split, "--state", state, "--tasks", "robustness", "--limit", 1]
    assert tfrnet("eval", "--data-dir", data, *options, "--attacks", "rescale").code == 0
    assert thresholds == [0.3]


def state_of(method: str, split: Path, model: Path, folder: Path, *settings: str) -> Path:
    """What a method makes of the first request of the split's stream."""
    requests = folder / "requests.jsonl"
    requests.write_text((split / "requests.jsonl").read_text().partition("\n")[0])
    run = ["--stream", requests, "--retain", split / "retain.jsonl", "--model", model]
    run += ["--state", folder / method, "--device", "cpu", "--method", method]
    more = [part for each in settings for part in ("--set", each)]
    assert run_main(("run", *run, "--set", "steps=1", "--set", "guard_examples=2", *more)) == 0
    return folder / method


@pytest.mark.slow
def test_robustness_of_a_method_without_a_mask(
    tfrnet: Tfrnet, data: Path, split: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    state = state_of("ga", split, tiny_folder, tmp_path)
    options = ["--split", split, "--state", state, "--tasks", "robustness", "--limit", 1]
    command = ["eval", "--data-dir", data, *options, "--relearn-steps", "0", "--relearn-seeds", 1]
    values = tfrnet(*command, "--json").json
    (found,) = values["results"]
    names = ["quantise", "prompts", "few-shot", "insist", "relearn"]
    assert values["options"]["attacks"] == names
    assert list(dict.fromkeys(row["attack"] for row in found["attacks"])) == names
    result = tfrnet(*command, "--attacks", "prompts,unmask", "--model", NOWHERE)
    assert (result.code, result.out) == (2, "")
    assert "attack unmask needs a mask, and the state's method has none" in result.error


def test_robustness_of_what_depends_on_the_prompt_is_refused(
    tfrnet: Tfrnet, data: Path, split: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    state = state_of("o3", split, tiny_folder, tmp_path)
    options = ["--split", split, "--state", state, "--tasks", "robustness,boolq"]
    result = tfrnet("eval", "--data-dir", data, *options, "--model", NOWHERE)
    assert (result.code, result.out) == (2, "")
    assert "robustness attacks an exported model, and a state of o3 cannot be" in result.error


def test_a_stream_for_a_program_and_a_person(
    tfrnet: Tfrnet, data: Path, split: Path, state: Path, tiny_folder: Path
) -> None:
    options = ["--split", split, "--tasks", "stream", "--data-dir", data]
    (found,) = tfrnet("eval", *options, "--state", state, "--json").json["results"]
    requests = len(found["requests"])
    assert requests == len((split / "requests.jsonl").read_text().splitlines())
    assert len(found["forgetting"]["fixed"]) == requests + 1
    title, head, nothing, *rows = tfrnet("eval", *options, "--state", state).out.splitlines()
    assert title.startswith(f"stream, {requests} requests on openbookqa")
    assert head.split()[0] == "after"
    assert float(nothing.split()[1]) == pytest.approx(found["forgetting"]["fixed"][0], abs=0.05)
    assert [row.split()[0] for row in rows[:requests]] == found["requests"]
    for title in ("Trade-off (paper)", "Honest Trade-off", "Witness", "General text"):
        assert sum(row.startswith(f"  {title}") for row in rows) <= 1
    (witness,) = (row for row in rows if row.startswith("  Witness"))
    assert float(witness.split()[1]) == pytest.approx(found["yardsticks"]["witness"], abs=0.005)
    assert rows[-1].startswith("not computed: distance to the oracle.")
    error = tfrnet("eval", *options, "--model", tiny_folder).error
    assert "stream evaluates what a state made a model forget; give --state FOLDER" in error


@pytest.mark.slow
def test_a_stream_beside_a_model_that_never_saw_it(
    tfrnet: Tfrnet, data: Path, split: Path, state: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    oracle = tmp_path / "oracle"
    shutil.copytree(tiny_folder, oracle)
    command = ["eval", "--split", split, "--tasks", "stream", "--data-dir", data]
    command += ["--state", state, "--oracle", oracle]
    result = tfrnet(*command)
    assert "does not say what it was trained without, so that is not checked" in result.err
    assert "  Oracle: losses" in result.out
    assert "not computed" not in result.out
    (oracle / "without.json").write_text(
        '{"schema": "tfrnet.without/1", "seeds": [0], "streams": ["openbookqa"], "digests": []}'
    )
    result = tfrnet(*command)
    assert (result.code, result.out) == (2, "")
    assert "may have been trained on" in result.error
    assert "prepare --without" in result.error


@pytest.mark.slow
def test_the_stream_of_a_method_without_a_mask(
    tfrnet: Tfrnet, data: Path, split: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    run = ["--stream", split / "requests.jsonl", "--retain", split / "retain.jsonl"]
    run += ["--model", tiny_folder, "--device", "cpu", "--method", "ga", "--set", "steps=1"]
    tfrnet("run", *run, "--state", tmp_path / "ga")
    options = ["--split", split, "--tasks", "stream", "--data-dir", data]
    title, head, nothing, *rows = tfrnet(
        "eval", *options, "--state", tmp_path / "ga"
    ).out.splitlines()
    assert title.startswith("stream, ")
    assert head.split() == ["after", "fixed", "seen", "unseen", "seen", "loss"]
    assert nothing.split()[0] == "nothing"
    assert rows
    tfrnet("run", *run, "--state", tmp_path / "short", "--keep", 1)
    error = tfrnet("eval", *options, "--state", tmp_path / "short").error
    assert "generation 1" in error
    assert "run it with --keep" in error


# TOFU, privacy, and the retain-only model


def test_figures_that_need_an_oracle_are_named_and_not_made_up(
    tfrnet: Tfrnet, data: Path, short_spoken: list[Path]
) -> None:
    command = evaluated(data, short_spoken[0], *TOFU)
    values = tfrnet(*command, "--json").json
    tofu, privacy = values["results"]
    assert tofu["n"] == {"forget": 4, "retain": 4, "real_authors": 4, "world_facts": 4}
    assert privacy["n"] == {"members": 4, "non_members": 4}
    assert "forget_quality" not in tofu
    assert not any(name.startswith("privleak") for name in privacy)
    assert [entry["figure"] for entry in values["missing"]] == ["forget_quality", "privleak"]
    assert all("--oracle MODEL" in entry["why"] for entry in values["missing"])
    result = tfrnet(*command)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == f"TOFU, model utility {tofu['model_utility']:.4f}"
    assert [line.split(". ")[0] for line in lines[-2:]] == [
        "not computed: forget_quality",
        "not computed: privleak",
    ]
    assert "PrivLeak 0" not in result.out
    assert "forget quality" not in result.out


@pytest.mark.slow
def test_an_oracle_gives_forget_quality_and_privleak(
    tfrnet: Tfrnet, data: Path, short_spoken: list[Path], tmp_path: Path
) -> None:
    own, other = short_spoken
    paths = [tmp_path / "own.jsonl", tmp_path / "other.jsonl"]
    command = evaluated(data, own, *TOFU, "--oracle", other)
    values = tfrnet(*command, "--json", "--samples", paths[0]).json
    assert values["missing"] == []
    assert values["oracle"] == str(other)
    alone = tfrnet(*evaluated(data, other, *TOFU, "--json", "--samples", paths[1])).json
    tofu, privacy = values["results"]
    assert tofu["oracle"] == alone["results"][0]
    assert privacy["oracle_mia_gap"] == alone["results"][1]["mia_gap"]
    samples = [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]
    ratios = [
        [s["truth_ratio"] for s in side if (s["task"], s["part"]) == ("tofu", "forget")]
        for side in samples
    ]
    assert tofu["forget_quality"]["p_value"] == pytest.approx(ks_2samp(*ratios).pvalue)
    aucs = []
    for side in samples:
        scores = {
            part: [s["score"] for s in side if (s.get("attack"), s["part"]) == ("min_k", part)]
            for part in ("member", "non-member")
        }
        wins = [b > a for a in scores["member"] for b in scores["non-member"]]
        aucs.append(np.mean(wins))
    assert privacy["auc"]["min_k"]["value"] == pytest.approx(aucs[0])
    signed = 100 * ((1 - aucs[0]) - (1 - aucs[1])) / (1 - aucs[1])
    assert privacy["privleak_signed"] == pytest.approx(signed)
    assert privacy["privleak"] == pytest.approx(abs(signed))
    result = tfrnet(*command)
    assert (result.code, result.err) == (0, "")
    assert f"forget quality: p = {tofu['forget_quality']['p_value']:.3g}" in result.out
    assert f"PrivLeak {abs(signed):.2f} (signed {signed:.2f}" in result.out
    assert "not computed" not in result.out


def test_samples_of_tofu_name_the_rows_of_the_file(
    tfrnet: Tfrnet, data: Path, short_spoken: list[Path], tmp_path: Path
) -> None:
    source = Source("folder", data)
    options = Options(tasks=("tofu", "privacy"), limit=4)
    drawn = make_plan(options, source)
    rows = load_tofu("forget10_perturbed", source)
    path = tmp_path / "samples.jsonl"
    tfrnet(*evaluated(data, short_spoken[0], *TOFU, "--samples", path))
    samples = [json.loads(line) for line in path.read_text().splitlines()]
    for part, wanted in (("forget", drawn.tofu["forget"]), ("member", drawn.privacy[0])):
        found = [
            s["row"] for s in samples if s["part"] == part and s.get("attack") in (None, "loss")
        ]
        assert found == [rows.index(row) for row in wanted]


def test_a_task_with_requests_of_its_own_size_takes_no_other(
    tfrnet: Tfrnet, data: Path, tmp_path: Path
) -> None:
    options = ["--task", "lume", "--out", tmp_path / "s", "--data-dir", data]
    result = tfrnet("split", *options, "--request-size", 2)
    assert result.code == 2
    assert result.error.startswith("--request-size 2: a request of lume has 6 examples")
    assert not (tmp_path / "s").exists()
