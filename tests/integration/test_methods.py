"""Any method under `tfrnet run`: the same stream, ledger, resume and undo as TFR-Net's."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests import tiny
from tests.integration.commands import write_lines
from tfrnet.core.errors import InputError, StateError
from tfrnet.method import find_method, method_names
from tfrnet.method_state import apply_state, mask_of
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.session import Session
from tfrnet.state.store import StateStore

PROBE = torch.tensor([[5, 6, 7, 8, 9]])
FAST = {
    "tfr": ["steps=1", "guard_examples=4", "retain_examples=6"],
    "rmu": ["steps=2", "guard_examples=4", "layer=1"],
    "o3": ["steps=2", "guard_examples=4", "gate=always"],  # else a strange prompt has weight 0
}
PRESETS = {"tfr": "deep"}  # the default would move nothing: a tiny model knows nothing
STREAM = tiny.requests(3, size=4)


def settings(name: str) -> list[str]:
    return FAST.get(name, ["steps=2", "guard_examples=4"])


@pytest.fixture
def opening(tiny_folder: Path, tmp_path: Path) -> list[object]:
    write_lines(tmp_path / "stream.jsonl", [request.to_dict() for request in STREAM])
    write_lines(tmp_path / "retain.jsonl", [e.to_dict() for e in tiny.examples(12)])
    return [
        *("--model", tiny_folder, "--retain", tmp_path / "retain.jsonl", "--device", "cpu"),
        *("--stream", tmp_path / "stream.jsonl"),
    ]


def options(name: str) -> list[str]:
    given = [part for setting in settings(name) for part in ("--set", setting)]
    return ["--method", name, "--preset", PRESETS.get(name, "default"), *given]


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("tfr", "npo", "o3") else pytest.mark.slow)
        for name in method_names()
    ],
)
def test_a_stream_in_two_sessions_ends_like_one_in_one(name, tiny_folder, tokenizer, tmp_path):
    preset = find_method(name).config_class.preset(PRESETS.get(name, "default"))
    config = preset.with_overrides(settings(name))

    def run(state: str, requests: list, model=None) -> None:
        model = model or AutoModelForCausalLM.from_pretrained(tiny_folder)
        before = model(PROBE).logits
        with Session(
            model, tokenizer, tmp_path / state, tiny.examples(12), method=name, config=config
        ) as session:
            assert all(outcome.accepted for outcome in session.run(requests))
            assert not torch.equal(model(PROBE).logits, before)
        assert torch.equal(model(PROBE).logits, before)

    run("whole", STREAM)
    run("parts", STREAM[:1])
    run("parts", STREAM)
    whole, parts = (StateStore.open(tmp_path / state) for state in ("whole", "parts"))
    assert whole.manifest.method == name
    assert parts.load().digest() == whole.load().digest()
    assert [e.get("id") for e in parts.entries] == [e.get("id") for e in whole.entries]
    # Put on a model without training, the state acts as it did.
    model = AutoModelForCausalLM.from_pretrained(tiny_folder)
    before = model(PROBE).logits
    with apply_state(model, tmp_path / "whole", 0):
        assert torch.equal(model(PROBE).logits, before)
    with apply_state(model, tmp_path / "whole") as effect:
        assert not torch.equal(model(PROBE).logits, before)
        effect.show(StateStore.open(tmp_path / "whole").load(0))
        assert torch.equal(model(PROBE).logits, before)


@pytest.mark.parametrize(
    "name", ["npo", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ga", "llm-eraser"))]
)
def test_run_history_status_verify_rollback_export(tfrnet, opening, tmp_path, name):
    state = tmp_path / "state"
    extra = ["--set", "trained=lora"] if name == "npo" else []
    result = tfrnet("run", *opening, "--state", state, *options(name), *extra)
    assert result.code == 0, result.err
    assert "request-0: applied, not checked, forget loss" in result.out
    assert "peak memory" in result.out
    again = tfrnet("run", *opening, "--state", state, "--json")
    assert again.json["skipped"] == [request.id for request in STREAM]
    assert f"method       {name}" in tfrnet("status", "--state", state).out
    assert tfrnet("status", "--state", state, "--json").json["method"] == name
    assert "applied, not checked (no guard)" in tfrnet("status", "--state", state).out
    assert "applied, not checked  request-0  forget" in tfrnet("history", "--state", state).out
    assert tfrnet("verify", "--state", state).code == 0
    assert tfrnet("export", "--state", state, "--out", tmp_path / "dense").code == 0
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "dense")
    live = AutoModelForCausalLM.from_pretrained(opening[1])
    with apply_state(live, state):
        torch.testing.assert_close(exported(PROBE).logits, live(PROBE).logits, rtol=1e-4, atol=1e-5)
    assert tfrnet("rollback", "--state", state, "--to", 1).code == 0
    store = StateStore.open(state)
    assert store.load().digest() == store.load(1).digest()
    entry = store.entries[1]
    assert set(entry["memory"]) == {"peak", "before", "state"}
    assert entry["memory"]["peak"] >= entry["memory"]["before"] > 0
    assert entry["seconds"]["total"] >= entry["seconds"]["train"] > 0


def test_o3_says_why_it_cannot_be_exported(tfrnet, opening, tmp_path):
    state = tmp_path / "state"
    assert tfrnet("run", *opening, "--state", state, *options("o3")).code == 0
    result = tfrnet("export", "--state", state, "--out", tmp_path / "dense")
    assert result.code == 2
    assert "prompt" in result.error
    assert not (tmp_path / "dense").exists()


def test_a_state_keeps_to_its_method_and_settings(tfrnet, opening, tmp_path):
    state = tmp_path / "state"
    run = ["run", *opening, "--state", state]
    assert tfrnet(*run, *options("ga")).code == 0
    assert "made with method ga, not npo" in tfrnet(*run, "--method", "npo").error
    assert "steps=2, not 3" in tfrnet(*run, "--set", "steps=3").error
    assert "unknown method 'nope'" in tfrnet(*run, "--method", "nope").error
    assert "unknown setting 'tau'" in tfrnet(*run, "--method", "ga", "--set", "tau=1").error
    with pytest.raises(StateError, match="no mask"):
        mask_of(StateStore.open(state))


def test_guarded_undoes_what_breaks_the_guard(tfrnet, opening, tmp_path):
    strong = ["--method", "ga", "--set", "learning_rate=0.1", "--set", "guard_examples=4"]
    free = tfrnet("run", *opening, "--state", tmp_path / "free", *strong)
    assert free.code == 0
    guarded = tfrnet("run", *opening, "--state", tmp_path / "guarded", *strong, "--guarded")
    assert guarded.code == 1
    assert "guard loss would rise" in guarded.out
    entries = StateStore.open(tmp_path / "guarded").entries[1:]
    rejected = [entry for entry in entries if entry["outcome"] == "rejected"]
    assert rejected
    assert all(entry["state_after"] == entry["state_before"] for entry in rejected)
    assert all(e["guard_loss_after"] > 1.05 * e["guard_loss_before"] for e in rejected)


def test_divergence_is_told_and_the_stream_goes_on(tfrnet, opening, tmp_path):
    wild = ["--method", "graddiff", "--set", "learning_rate=1e25", "--set", "guard_examples=4"]
    result = tfrnet("run", *opening, "--state", tmp_path / "state", *wild)
    assert result.code == 1
    assert result.out.count("diverged") == len(STREAM)
    assert "the last state was restored" in result.out
    assert StateStore.open(tmp_path / "state").generation == 0


def test_settings_teach_every_method(tfrnet):
    result = tfrnet("settings", "--method", "asu")
    assert result.code == 0
    assert "temperature = 2.3" in result.out
    assert "presets: default, tuned, published" in result.out
    assert "only with trained=lora: lora_factor, rank, target_modules" in result.out
    tuned = tfrnet("settings", "--method", "asu", "--preset", "tuned", "--json").json
    chosen = find_method("asu").config_class.presets()["tuned"]
    assert all(tuned["config"][key] == value for key, value in chosen.items())
    assert "unknown preset 'paper'; choose from default, tuned, published" in (
        tfrnet("settings", "--method", "asu", "--preset", "paper").error
    )


def test_a_session_refuses_the_settings_of_another_method(tiny_folder, tokenizer, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(tiny_folder)
    with pytest.raises(InputError, match="ga takes a GAConfig, not a TFRConfig"):
        Session(model, tokenizer, tmp_path, tiny.examples(8), method="ga", config=TFRConfig())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["graddiff", "o3"])
def test_killed_in_mid_stream_it_goes_on_to_the_same_bits(tfrnet, opening, tmp_path, name):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert tfrnet("run", *opening, "--state", whole, *options(name)).code == 0
    again = ["--state", killed, *options(name)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tfrnet", "run", *map(str, opening), *map(str, again)],
        stdout=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        ledger = killed / "ledger.jsonl"
        if ledger.exists() and ledger.read_text().count("\n") >= 2:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    seen = StateStore.open(killed).history.requests_seen
    assert tfrnet("run", *opening, "--state", killed).code == 0
    assert StateStore.open(killed).load().digest() == StateStore.open(whole).load().digest()
    assert 1 <= seen <= len(STREAM)
    lines = [json.loads(line) for line in (killed / "ledger.jsonl").read_text().splitlines()]
    assert [e["id"] for e in lines[1:]] == [request.id for request in STREAM]
    shutil.rmtree(killed)
