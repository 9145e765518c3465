"""Shared parts of the tests: small random models, a tokenizer, the real model."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# On a busy machine a command may last until it prints a line of its progress.
os.environ.setdefault("TFRNET_QUIET", "1")
# The signing key of whoever runs the tests is not for them.
os.environ.pop("TFRNET_KEY", None)
os.environ.pop("TFRNET_DIGEST_KEY", None)
# Beside another worker of pytest-xdist a second thread would only wait, in subprocesses too.
os.environ.update({"OMP_NUM_THREADS": "1"} if "PYTEST_XDIST_WORKER" in os.environ else {})

from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from tests import tiny


@pytest.fixture(autouse=True)
def _two_threads() -> None:
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))


@pytest.fixture
def one_thread(_two_threads: None) -> None:
    """With so small models two threads would spend their time waiting for each other."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return tiny.make_tokenizer()


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory, tokenizer) -> Path:
    """A small LLaMA with its tokenizer, saved as a user would have it."""
    folder = tmp_path_factory.mktemp("tiny-llama")
    tiny.make_model("llama").save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def real():
    """The real default model, loaded once for all tests that use it."""
    from tfrnet import load_model

    return load_model("smollm2-135m")


# The first tier has llama, qwen2 (biases), gpt2 (transposed weights) and qwen2_moe (experts).
SECOND_TIER = {"gemma3", "gpt_neox", "mistral", "mixtral", "phi3", "qwen3"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave architectures and teams of processes to the second tier; begin with the longest tests.

    So no process is left alone with a long one at the end.
    """
    for item in items:
        values = item.callspec.params.values() if hasattr(item, "callspec") else ()
        further = SECOND_TIER.intersection(value for value in values if isinstance(value, str))
        if further or "launcher" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
