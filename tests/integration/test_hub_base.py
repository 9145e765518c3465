"""A base model from the hub: the export names its revision, and the adapter is loaded on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiny
from tests.integration.commands import FAST, write_lines

pytestmark = pytest.mark.slow
NAME, REVISION = "some/tiny", "0123456789abcdef0123456789abcdef01234567"
LOADING = """
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

ids = torch.arange(1, 20)[None]
base = AutoModelForCausalLM.from_pretrained("some/tiny")
with torch.no_grad():
    untouched, dense, ia3 = (
        model(ids).logits
        for model in (base, *map(AutoModelForCausalLM.from_pretrained, ("dense", "ia3")))
    )
    by_peft = PeftModel.from_pretrained(base, "ia3")(ids).logits
print((ia3 - dense).abs().max() < 1e-5, (by_peft - dense).abs().max() < 1e-5)
print((untouched - dense).abs().max() > 1e-3)
"""


@pytest.fixture
def home(tmp_path: Path, tokenizer) -> Path:
    """The hub's cache as a download leaves it, with one model."""
    cached = tmp_path / "home" / "hub" / f"models--{NAME.replace('/', '--')}"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text(REVISION)
    tiny.make_trained_model().save_pretrained(cached / "snapshots" / REVISION)
    tokenizer.save_pretrained(cached / "snapshots" / REVISION)
    return tmp_path / "home"


def test_its_revision_is_on_the_card_and_in_the_adapter(home: Path, tmp_path: Path) -> None:
    def python(*arguments: object) -> str:
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=tmp_path,
            env=os.environ | {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    write_lines(tmp_path / "one.jsonl", [tiny.requests(1)[0].to_dict()])
    write_lines(tmp_path / "retain.jsonl", [example.to_dict() for example in tiny.examples(20)])
    program = ("-c", "from tfrnet.cli.main import main; main()")
    data = ("--request", "one.jsonl", "--retain", "retain.jsonl", "--model", NAME)
    python(*program, "forget", *data, *FAST)
    for form in ("dense", "ia3"):
        python(*program, "export", "--format", form, "--out", form)
        card = (tmp_path / form / "README.md").read_text()
        assert f"| base model | `{NAME}` |" in card
        assert f"| revision | {REVISION} |" in card
        assert f"\nbase_model: {NAME}\n" in card
    config = json.loads((tmp_path / "ia3" / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["revision"]) == (NAME, REVISION)
    assert "False" not in python("-c", LOADING)
