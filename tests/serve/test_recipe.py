"""The recipe that hands every new generation to another server."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from tests import tiny
from tests.serve.answers import alone
from tests.serve.running import primary, wait_until, with_template
from tfrnet.models.load import LoadedModel
from tfrnet.serve.service import ServiceOptions

SCRIPT = Path(__file__).parents[2] / "packages" / "service" / "reload-sglang.sh"


class StandIn:
    """Takes SGLang's call and loads the folder, as it would."""

    def __init__(self) -> None:
        self.folders: list[str] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/update_weights_from_disk":
                    outer.folders.append(json.loads(body)["model_path"])
                    self.send_response(200)
                else:
                    self.send_response(404)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.mark.slow
def test_a_commit_is_exported_and_loaded_elsewhere(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model"
    tiny.make_trained_model().save_pretrained(model)
    with_template(tokenizer).save_pretrained(model)
    other = StandIn()
    monkeypatch.setenv("SERVER", f"http://127.0.0.1:{other.server.server_port}")
    monkeypatch.setenv("EXPORTS", str(tmp_path / "exports"))
    monkeypatch.setenv("TFRNET", str(Path(sys.executable).with_name("tfrnet")))
    (tmp_path / "exports").mkdir()
    request = tiny.requests(1)[0]
    prompt = request.examples[0].prompt
    options = ServiceOptions(on_commit=f"sh {SCRIPT}")
    with primary(tmp_path / "state", tokenizer, options, model_name=str(model)) as running:
        running.submit(request)
        running.ended(request.id)
        wait_until(lambda: other.folders, 120)
        said = running.complete(prompt, 12).json()["choices"][0]["text"]
    other.server.shutdown()
    assert other.folders == [str(tmp_path / "exports" / "1")]
    loaded = LoadedModel(AutoModelForCausalLM.from_pretrained(other.folders[0]).eval(), tokenizer)
    assert alone(loaded, prompt, 12) == said
