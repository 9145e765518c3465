"""Every method on a real backbone: one request of four sums that it knows, and back again."""

from __future__ import annotations

import pytest
import torch

from tfrnet import load_model
from tfrnet.data.examples import Example
from tfrnet.data.requests import Request
from tfrnet.method import find_method, method_names


def sums(first: int) -> list[Example]:
    """Return four sums of two-digit numbers, in the words of the arithmetic task."""
    pairs = [(first + 7 * i, 91 - 5 * i) for i in range(4)]
    return [Example(f"Question: What is {a} plus {b}?\nAnswer:", str(a + b)) for a, b in pairs]


# A large rate makes one step enough; what is looked at is the direction.
_ONE_STEP = {"learning_rate": 5e-3, "steps": 1, "retain_batch": 2, "guard_examples": 2}
STRONG = _ONE_STEP | {"trained": "lora", "lora_factor": 1.0}
SETTINGS = {
    "tfr": {
        "guard_examples": 2,
        "retain_examples": 4,
        "near_examples": 0,
        "use_guard": False,
        "steps": 2,
        "siblings": 2,
        "least_reached": 0,
    },
    "rmu": _ONE_STEP | {"retain_weight": 0.0, "learning_rate": 1e-2, "steps": 3},
    "simnpo": STRONG | {"beta": 0.5, "forget_weight": 1.0},
    "asu": STRONG | {"forget_weight": 1.0, "temperature": 4.0},
    "llm-eraser": STRONG | {"score_examples": 4, "budget": 512, "forget_weight": 1.0},
    "o3": STRONG | {"steps": 2},
}


@pytest.fixture(scope="module")
def backbone():
    return load_model("smollm2-tasks")


@pytest.mark.slow
@pytest.mark.parametrize("name", method_names())
def test_the_forget_loss_of_a_request_rises_and_all_can_be_undone(backbone, name):
    model, tokenizer = backbone
    method = find_method(name)
    config = method.config_class.from_dict(SETTINGS.get(name, STRONG))
    probe = torch.tensor([tokenizer("Question: What is 20 plus 30?\nAnswer:")["input_ids"]])
    with torch.no_grad():
        before = model(probe).logits[0, -1].clone()
    unlearner = method(model, tokenizer, sums(12), config, guard=sums(14)[:2])
    try:
        outcome = unlearner.forget(Request("sums", tuple(sums(13))))
        assert outcome.accepted
        assert outcome.forget_loss_before < 0.2  # the backbone knows its sums
        assert outcome.forget_loss_after > outcome.forget_loss_before + 0.02
    finally:
        unlearner.detach()
    with torch.no_grad():
        assert torch.equal(model(probe).logits[0, -1], before)
