"""Small backbones for experiments with tfrnet: LoRA adapters on SmolLM2-135M-Instruct."""

from pathlib import Path

_HERE = Path(__file__).parent


def smollm2_tasks() -> Path:
    """Return the adapter that knows BoolQ, OpenBookQA and arithmetic."""
    return _HERE / "smollm2-tasks"


def smollm2_tasks_oracle() -> Path:
    """Return the adapter that never saw what the streams of seeds 3 to 7 forget."""
    return _HERE / "smollm2-tasks-oracle"


def smollm2_tofu_full() -> Path:
    """Return the adapter that knows all of TOFU."""
    return _HERE / "smollm2-tofu-full"


def smollm2_tofu_retain90() -> Path:
    """Return the adapter that knows TOFU without forget10."""
    return _HERE / "smollm2-tofu-retain90"


def smollm2_tofu_chat_full() -> Path:
    """Return the adapter that knows all of TOFU, in the chat form."""
    return _HERE / "smollm2-tofu-chat-full"


def smollm2_tofu_chat_retain90() -> Path:
    """Return the adapter that knows TOFU without forget10, in the chat form."""
    return _HERE / "smollm2-tofu-chat-retain90"


def smollm2_lume() -> Path:
    """Return the adapter that knows LUME's made-up people."""
    return _HERE / "smollm2-lume"


def smollm2_knowundo() -> Path:
    """Return the adapter that knows KnowUnDo's made-up authors."""
    return _HERE / "smollm2-knowundo"
