"""An export of the real model in other programs: `transformers serve` and `lm_eval`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
from transformers.utils.import_utils import is_serve_available

from tests.datasets import made_up_folder
from tests.integration.commands import FAST, Tfrnet, run_main, write_lines
from tests.integration.harness import write_tasks
from tests.serve.running import wait_until
from tfrnet.data.sources import Source
from tfrnet.data.tasks import find_task
from tfrnet.models.generation import continue_texts
from tfrnet.models.load import LoadedModel, load_model

pytestmark = [pytest.mark.real, pytest.mark.slow]
PROMPT = "The capital of Portugal is"
ITEMS = 12


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default model after a request, as a dense folder."""
    folder = tmp_path_factory.mktemp("exported")
    examples = [{"prompt": PROMPT, "answer": "Lisbon"}]
    request = write_lines(folder / "request.jsonl", [{"id": "one", "examples": examples}])
    kept = [{"text": f"A dozen is twelve, and {n} and 1 are {n + 1}."} for n in range(12)]
    retain = write_lines(folder / "retain.jsonl", kept)
    state = ["--state", folder / "state"]
    data = ["--request", request, "--retain", retain, "--no-audit"]
    assert run_main(("forget", *data, *state, "--device", "cpu", *FAST)) == 0
    assert run_main(("export", *state, "--out", folder / "model", "--device", "cpu")) == 0
    return folder / "model"


@pytest.fixture
def served(exported: Path, tmp_path: Path) -> Iterator[str]:
    """The address of `transformers serve`, run on the export."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(exported)]
    log = tmp_path / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"],
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
            stdout=out,
            stderr=out,
        )

    def is_up() -> bool:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).is_success
        except httpx.TransportError:
            return False

    try:
        wait_until(is_up, 120)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.skipif(not is_serve_available(), reason="transformers[serving] is not installed")
def test_transformers_serve_answers_openai_clients_as_generate_does(
    exported: Path, served: str
) -> None:
    loaded = load_model(str(exported), "float32", "cpu")
    client = openai.OpenAI(base_url=served, api_key="none", max_retries=0, timeout=120)
    options = {"model": str(exported), "max_tokens": 12, "temperature": 0}
    said = client.completions.create(prompt=PROMPT, **options).choices[0].text
    assert said == _continued(loaded, PROMPT)
    assert "Lisbon" not in said
    messages = [{"role": "user", "content": "What is the capital of Portugal?"}]
    prompt = loaded.tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )
    chat = client.chat.completions.create(messages=messages, **options)
    assert chat.choices[0].message.content == _continued(loaded, prompt)
    stream = client.chat.completions.create(messages=messages, stream=True, **options)
    pieces = [part.choices[0].delta.content or "" for part in stream if part.choices]
    assert "".join(pieces) == chat.choices[0].message.content


def _continued(loaded: LoadedModel, prompt: str) -> str:
    (text,) = continue_texts(loaded, [prompt], 12)
    return text


def test_lm_eval_finds_what_eval_finds(exported: Path, tfrnet: Tfrnet, tmp_path: Path) -> None:
    data = made_up_folder(tmp_path / "data", ITEMS)
    task = find_task("openbookqa")
    write_tasks({"openbookqa": task.load(task.evaluation, Source("folder", data))}, tmp_path)
    arguments = f"pretrained={exported},dtype=float32"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "lm_eval", "--model", "hf", "--model_args", arguments),
            *("--tasks", "local_openbookqa", "--include_path", tmp_path, "--device", "cpu"),
            *("--limit", str(ITEMS), "--output_path", tmp_path / "out"),
        ],
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (written,) = (tmp_path / "out").rglob("results_*.json")
    theirs = json.loads(written.read_text())["results"]["local_openbookqa"]
    options = ["--tasks", "openbookqa", "--data-dir", data, "--limit", ITEMS, "--items", "first"]
    found = tfrnet("eval", "--model", exported, *options, "--device", "cpu", "--json")
    (result,) = found.json["results"]
    assert result["n"] == ITEMS
    for name in ("acc", "acc_norm"):
        assert result["metrics"][name]["value"] == pytest.approx(100 * theirs[f"{name},none"])
