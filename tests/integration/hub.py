"""A stand-in for the Hugging Face hub: the few calls that an upload makes, over HTTP."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import yaml


class Hub(ThreadingHTTPServer):
    """What was uploaded to it is in `repositories`: name -> path -> bytes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.large: dict[str, bytes] = {}
        self.private: dict[str, bool] = {}
        self.fails_at = ""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, status: int, value: Any = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _name(self) -> str:
        return "/".join(self.path.removeprefix("/api/models/").split("?")[0].split("/")[:2])

    def do_GET(self) -> None:
        if self.path.startswith("/api/whoami"):
            known = self.headers.get("Authorization") == "Bearer hf_test"
            self._answer(200 if known else 401, {"name": "me", "type": "user", "orgs": []})
        elif self._name() in self.server.repositories:
            self._answer(200, {"id": self._name(), "modelId": self._name()})
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    def do_POST(self) -> None:
        body = self._body()
        if self.server.fails_at and self.server.fails_at in self.path:
            self._answer(500, {"error": "out of order"})
        elif self.path == "/api/repos/create":
            self._create(json.loads(body))
        elif self.path == "/api/validate-yaml":
            _, head, _ = json.loads(body)["content"].split("---\n", 2)
            facts = yaml.safe_load(head)
            errors = [] if facts["library_name"] else [{"message": "no library"}]
            self._answer(200, {"errors": errors, "warnings": []})
        elif "/preupload/" in self.path:
            wanted = json.loads(body)["files"]
            large = [f["path"].endswith((".safetensors", ".gguf")) for f in wanted]
            self._answer(
                200,
                {
                    "files": [
                        {
                            "path": f["path"],
                            "uploadMode": "lfs" if is_large else "regular",
                            "shouldIgnore": False,
                        }
                        for f, is_large in zip(wanted, large, strict=True)
                    ]
                },
            )
        elif self.path.endswith("/info/lfs/objects/batch"):
            objects = json.loads(body)["objects"]
            actions = [
                o | {"actions": {"upload": {"href": f"{self.server.address}/large/{o['oid']}"}}}
                for o in objects
            ]
            self._answer(200, {"transfer": "basic", "objects": actions})
        elif "/commit/" in self.path:
            self._commit(body)
        else:
            self._answer(404, {})

    def _create(self, wanted: dict[str, Any]) -> None:
        name = f"{wanted.get('organization') or 'me'}/{wanted['name']}"
        if name in self.server.repositories:
            self._answer(409, {"error": "You already created this model repo"})
            return
        self.server.repositories[name] = {}
        # Newer clients name the visibility, older ones say whether it is private.
        seen = wanted.get("visibility", "private" if wanted.get("private") else "public")
        self.server.private[name] = seen == "private"
        self._answer(200, {"url": f"{self.server.address}/{name}", "name": name})

    def _commit(self, body: bytes) -> None:
        files = self.server.repositories[self._name()]
        for line in body.decode().splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.server.large[value["oid"]]
        url = f"{self.server.address}/{self._name()}/commit/{'0' * 40}"
        self._answer(200, {"commitUrl": url, "commitOid": "0" * 40, "success": True})

    def do_PUT(self) -> None:
        self.server.large[self.path.rsplit("/", 1)[-1]] = self._body()
        self._answer(200)

    def do_DELETE(self) -> None:
        wanted = json.loads(self._body())
        self.server.repositories.pop(f"{wanted.get('organization') or 'me'}/{wanted['name']}")
        self._answer(200)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@contextmanager
def running_hub() -> Iterator[Hub]:
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
