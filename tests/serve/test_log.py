"""A log that cannot be written does not stop the work."""

from __future__ import annotations

import errno
import io
from pathlib import Path

import pytest

from tests import tiny
from tests.serve.running import make_session, serving
from tfrnet.serve.log import Log
from tfrnet.serve.service import ServiceOptions, open_primary


class Full(io.StringIO):
    """A file on a disk that may be full."""

    is_full = False

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_a_log_on_a_full_disk_loses_lines_only() -> None:
    stream = Full()
    log = Log(stream)
    for is_full, event in ((False, "first"), (True, "second"), (False, "third")):
        stream.is_full = is_full
        log.say(event)
    assert "first" in stream.getvalue()
    assert "third" in stream.getvalue()
    stream.close()
    log.say("fourth")


@pytest.mark.parametrize("moment", ["submitted", "started"])
def test_a_request_is_worked_out_though_the_log_is_full(
    tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    said = Full()
    service = open_primary(make_session(tmp_path / "state", tokenizer), ServiceOptions(), Log(said))
    primary = service.primary
    assert primary
    if moment == "started":
        real = primary.queue.begin

        def begin(name: str, lines: int) -> object:
            said.is_full = True
            return real(name, lines)

        monkeypatch.setattr(primary.queue, "begin", begin)
    with serving(service, said) as running:
        said.is_full = moment == "submitted"
        assert running.submit(tiny.requests(1)[0]).status_code == 202
        assert running.ended("request-0")["state"] == "completed"
        assert running.client.get("/readyz").status_code == 200
