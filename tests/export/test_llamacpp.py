"""What llama.cpp answers, and what it says instead of an answer."""

import pytest
import xllamacpp

from tfrnet.core.errors import InputError
from tfrnet.export.llamacpp import continue_in_llamacpp

TOO_LONG = {
    "error": {
        "code": 400,
        "message": "request (40001 tokens) exceeds the available context size (2048 tokens), "
        "try increasing it",
        "type": "exceed_context_size_error",
    }
}
OTHER = {"error": {"code": 500, "message": "out of slots", "type": "server_error"}}


def answering(monkeypatch, answers):
    """Put a stand-in in the place of llama.cpp's server."""

    class Server:
        def __init__(self, params):
            pass

        def handle_completions(self, options):
            return answers[options["prompt"]]

    monkeypatch.setattr(xllamacpp, "Server", Server)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (TOO_LONG, r"prompt 2: request \(40001 tokens\) exceeds .*; give a shorter prompt$"),
        (OTHER, "prompt 2: out of slots$"),
    ],
)
def test_what_llama_cpp_says_instead_of_an_answer_is_told(monkeypatch, tmp_path, answer, problem):
    good = {"choices": [{"text": " Paris"}]}
    answering(monkeypatch, {"short": good, "long": answer})
    assert continue_in_llamacpp(tmp_path, ["short"], 3) == [" Paris"]
    with pytest.raises(InputError, match=problem):
        continue_in_llamacpp(tmp_path, ["short", "long"], 3)
