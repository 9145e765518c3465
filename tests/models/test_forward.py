"""Losses of answer tokens against the plain computation from all logits."""

import pytest
import torch

from tests import tiny
from tfrnet.data.examples import Encoded, Example, encode_all
from tfrnet.models.forward import answer_losses, collate, evaluate_answers, evaluate_losses

CPU = torch.device("cpu")


def make_examples(count):
    """Return sequences of different lengths; the first answer begins at the second token."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for number in range(count):
        length = 2 + 7 * number % 23
        ids = torch.randint(tiny.VOCABULARY, (length,), generator=generator).tolist()
        made.append(Encoded(tuple(ids), max(1, length - 1 - number % 5)))
    return made


@torch.no_grad()
def plain_losses(model, examples):
    """Compute each example alone in float64: softmax over all logits, mean over answer tokens."""
    model = model.double()
    model.set_experts_implementation("eager")
    losses = []
    for example in examples:
        p = model(torch.tensor([example.ids])).logits[0].softmax(-1)
        answer = range(example.answer_start, len(example.ids))
        losses.append(-sum(p[i - 1, example.ids[i]].log() for i in answer) / len(answer))
    return torch.stack(losses)


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_losses_are_those_computed_from_all_logits(architecture):
    examples = make_examples(7)
    expected = plain_losses(tiny.make_model(architecture), examples)
    model = tiny.make_model(architecture)
    for padding_side in ("right", "left"):
        with torch.no_grad():
            found = answer_losses(model, collate(examples, CPU, padding_side))
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_losses_are_close_and_in_float32(dtype):
    examples = make_examples(7)
    expected = plain_losses(tiny.make_model("llama"), examples)
    with torch.no_grad():
        found = answer_losses(tiny.make_model("llama", dtype), collate(examples, CPU))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=4 * torch.finfo(dtype).eps, atol=0)


def test_a_model_in_float64_gives_float64_losses():
    examples = make_examples(7)
    expected = plain_losses(tiny.make_model("gpt2"), examples)
    found = answer_losses(tiny.make_model("gpt2").double(), collate(examples, CPU))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_the_head_computes_logits_for_predicting_positions_only(architecture):
    model = tiny.make_model(architecture)
    seen = []
    model.lm_head.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    answer_losses(model, collate([Encoded((5, 6, 7, 8, 9), 3), Encoded((4, 3, 2), 2)], CPU))
    assert seen == [(1, 3, tiny.VOCABULARY)]


def test_the_model_gives_all_logits_again_afterwards():
    model = tiny.make_model("llama")
    ids = torch.tensor([[5, 6, 7, 8]])
    before = model(ids).logits
    answer_losses(model, collate([Encoded((5, 6, 7), 2)], CPU))
    assert torch.equal(model(ids).logits, before)


def test_the_model_gives_all_logits_again_after_an_error(monkeypatch):
    model = tiny.make_model("llama")
    ids = torch.tensor([[5, 6, 7, 8]])
    before = model(ids).logits
    with monkeypatch.context() as broken:
        broken.setattr(model.model.norm, "forward", lambda hidden: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            answer_losses(model, collate([Encoded((5, 6, 7), 2)], CPU))
    assert torch.equal(model(ids).logits, before)


@pytest.mark.parametrize("padding_side", ["left", "right"])
def test_answer_positions_are_those_that_predict_answer_tokens(padding_side):
    batch = collate([Encoded((5, 6, 7, 8, 9), 3), Encoded((4, 3, 2), 1)], CPU, padding_side)
    second = [0, 0, 1, 1] if padding_side == "left" else [1, 1, 0, 0]
    assert batch.answer_positions().tolist() == [[0, 0, 1, 1], second]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 1], second]
    assert batch.targets.tolist() == [8, 9, 3, 2]
    assert (batch.tokens.tolist(), batch.answer_tokens.tolist()) == ([5, 3], [2, 2])


def test_the_last_token_is_a_target_and_no_input():
    batch = collate([Encoded((5, 6, 7, 8, 9), 3), Encoded((4, 3, 2), 1)], CPU)
    assert batch.input_ids.tolist() == [[5, 6, 7, 8], [4, 3, 0, 0]]


@pytest.mark.parametrize("batch_size", [1, 2, 5, 100])
@pytest.mark.parametrize("architecture", ["llama", "gpt2", "mixtral"])
def test_evaluation_keeps_the_order_at_any_batch_size(architecture, batch_size):
    examples = make_examples(9)
    expected = plain_losses(tiny.make_model(architecture), examples)
    found = evaluate_losses(tiny.make_model(architecture), examples, batch_size)
    assert not found.requires_grad
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=0)


def test_an_answer_counts_as_given_exactly_if_greedy_decoding_gives_it(tokenizer):
    model = tiny.make_trained_model()
    examples = [
        *tiny.examples(6),
        *(Example(e.prompt, "another answer") for e in tiny.examples(2)),
        Example("Item 3 of the", "very very very old box is"),
    ]
    encoded = encode_all(examples, tokenizer, 64, "test")
    found = evaluate_answers(model, encoded, 3)
    assert torch.equal(found.losses, evaluate_losses(model, encoded, 3))
    for example, given in zip(encoded, found.given.tolist(), strict=True):
        prompt = torch.tensor([example.ids[: example.answer_start]])
        output = model.generate(
            prompt, max_new_tokens=example.answer_length, do_sample=False, eos_token_id=None
        )
        assert given == (output[0].tolist() == list(example.ids))
    assert {True, False} == set(found.given.tolist())
