"""Does an installed tfrnet work? A small random model forgets, and is undone, checked and exported.

`make release-check` runs it by the Python of an environment that holds the built wheel alone:

    python -m tools.smoke_test
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

import tfrnet
from tests import tiny

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Run the commands that every user needs; the first one that fails ends it."""
    if Path(tfrnet.__file__).is_relative_to(ROOT / "src"):
        sys.exit("this is the tfrnet of the source tree, not an installed one")
    disable_progress_bar()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_files(folder)
        fast = ["--preset", "deep", "--set", "steps=1"]
        fast += ["--set", "guard_examples=4", "--set", "retain_examples=6"]
        data = ["--stream", "requests.jsonl", "--retain", "retain.jsonl"]
        _run(folder, "--version")
        _run(folder, "run", *data, "--model", "model", *fast)
        _run(folder, "run", *data, "--model", "model", "--method", "npo", "--state", "npo")
        status = json.loads(_run(folder, "status", "--json"))
        assert status["generation"] == 2, status
        _run(folder, "rollback", "--to", "1")
        _run(folder, "verify")
        _run(folder, "generate", "--prompt", "Item 3 of the old box is")
        for form in ("dense", "ia3"):
            _run(folder, "export", "--format", form, "--out", form)
            _load(folder / form)
        _run(folder, "import", "ia3", "--retain", "retain.jsonl", "--state", "imported")
        _run(folder, "report", "tfrnet-state")
    print(f"tfrnet {tfrnet.__version__} on Python {sys.version.split()[0]} works")


def _write_files(folder: Path) -> None:
    tiny.make_model().save_pretrained(folder / "model")
    tiny.make_tokenizer().save_pretrained(folder / "model")
    rows = {"requests": tiny.requests(2, size=2), "retain": tiny.examples(10)}
    for name, values in rows.items():
        lines = [json.dumps(value.to_dict()) + "\n" for value in values]
        (folder / f"{name}.jsonl").write_text("".join(lines))


def _run(folder: Path, *arguments: str) -> str:
    """Run the installed command as a user does, and return what it prints."""
    program = Path(sys.executable).parent / "tfrnet"
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [program, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"tfrnet {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def _load(folder: Path) -> None:
    AutoModelForCausalLM.from_pretrained(folder)


if __name__ == "__main__":
    main()
