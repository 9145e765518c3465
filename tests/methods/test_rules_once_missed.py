"""Rules of the methods that were once missed, each as the fault showed itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests import tiny
from tests.methods.test_methods import STREAM, make
from tfrnet.data.examples import Example, encode_all
from tfrnet.data.requests import Request
from tfrnet.method import find_method, method_names
from tfrnet.methods.llm_eraser.scores import lowest_by_layer
from tfrnet.models.forward import answer_logits, collate, token_losses
from tfrnet.models.layers import decoder_layers, hidden_after

pytestmark = pytest.mark.usefixtures("one_thread")


def make_model_that_never_ends():
    """A trained model to which the end of the text is all but impossible."""
    model = tiny.make_trained_model()
    head = model.get_output_embeddings()
    head.bias = torch.nn.Parameter(torch.zeros(head.out_features), requires_grad=False)
    with torch.no_grad():
        head.bias[model.config.eos_token_id] = -100.0
    return model


# GA and GradDiff


@pytest.mark.parametrize("name", ["ga", "graddiff"])
def test_a_request_that_the_model_hardly_knows_is_trained_on_all_the_same(name):
    """After some requests the loss of the next is above any ceiling; no source has one."""
    model = tiny.make_model()
    with torch.no_grad():
        model.get_output_embeddings().weight *= 10
    outcome = make(name, "full", model).forget(STREAM[0])
    assert outcome.forget_loss_before > 6
    assert outcome.details["steps"] == 3


def test_graddiff_takes_as_many_steps_as_npo_and_simnpo():
    steps = {name: find_method(name).config_class().steps for name in ("graddiff", "npo", "simnpo")}
    assert set(steps.values()) == {10}


@pytest.mark.parametrize("name", ["ga", "graddiff"])
def test_a_ceiling_does_not_count_the_end_of_the_text(name):
    settings = {"forget_ceiling": 6.0, "end_token": True}
    outcome = make(name, "full", make_model_that_never_ends(), **settings).forget(STREAM[0])
    assert outcome.forget_loss_before < 1
    assert outcome.details["steps"] > 0
    before = settings | {"ceiling_counts_end": True}
    outcome = make(name, "full", make_model_that_never_ends(), **before).forget(STREAM[0])
    assert outcome.details["steps"] == 0


def test_a_ceiling_still_ends_a_request():
    assert make("ga", "full", forget_ceiling=0.0).forget(STREAM[0]).details["steps"] == 0
    assert make("ga", "full", forget_ceiling=50.0).forget(STREAM[0]).details["steps"] == 3


def test_ga_does_not_train_the_end_of_the_text():
    """The source's targets are a text's own tokens; the end, once raised, never ends an answer."""
    net = make("ga", "full")
    (forget,) = net.prepare([STREAM[0]])
    assert [e.ids for e in net._targets(forget)] == [e.ids for e in forget]


# RMU


def test_rmus_target_is_as_long_as_states_are_after_the_first_token():
    net = make("rmu", "full", scale=5.0, forget_batch=4)
    (forget,) = net.prepare([STREAM[0]])
    layer = decoder_layers(net.model)[1]
    lengths = []
    with torch.no_grad():
        for example in forget[:4]:
            batch = collate([example], torch.device("cpu"))
            lengths.append(hidden_after(net.model, layer, batch).norm(dim=-1))
    with_first = 5 * float(torch.cat(lengths).mean())
    without = 5 * float(torch.cat([each[1:] for each in lengths]).mean())
    assert abs(with_first - without) > 1e-3
    assert net.forget(STREAM[0]).details["coefficient"] == pytest.approx(without, rel=1e-5)
    old = make("rmu", "full", scale=5.0, forget_batch=4, scale_skips_first=False)
    assert old.forget(STREAM[0]).details["coefficient"] == pytest.approx(with_first, rel=1e-5)


# LLM-Eraser


@pytest.mark.slow
def test_the_channels_to_prune_depend_on_the_forget_data():
    """Answers that the model knows by heart have no gradient; their prompts have."""
    model = make_model_that_knows(STREAM[0])
    before = {"score_tokens": "answer", "ranking": "global"}
    assert chosen(model, 0.2, **before) == chosen(model, 0.0, **before)
    assert chosen(model, 0.2) != chosen(model, 0.0)


def make_model_that_knows(request: Request):
    """A model that gives every answer of a request with near certainty."""
    model, tokenizer = tiny.make_trained_model(), tiny.make_tokenizer()
    examples = encode_all(request.examples, tokenizer, 128, "request")
    batch = collate(examples, torch.device("cpu"))
    adam = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(120):
        token_losses(answer_logits(model, batch), batch.targets).mean().backward()
        adam.step()
        adam.zero_grad()
    return model


def chosen(model, weight: float, **settings) -> set[int]:
    """The channels that LLM-Eraser prunes with some weight of the forget data."""
    common = {"steps": 1, "budget": 24, "max_pruned": 1, "end_token": False}
    net = make("llm-eraser", model=model, score_weight=weight, **common, **settings)
    assert net.forget(STREAM[0]).forget_loss_before < 0.002
    mask = net.effect.mask_of(net.state)
    net.detach()
    return set((mask == 0).nonzero().flatten().tolist())


def test_every_layer_gives_an_equal_part_of_what_is_pruned():
    layers = [torch.tensor([3.0, 1, 2]), torch.tensor([30.0, 10, 20, 5])]
    everything = torch.ones(7, dtype=torch.bool)
    assert lowest_by_layer(layers, everything, 4).tolist() == [1, 6, 2, 4]
    # What does not divide comes from the lowest scores; a layer that is used up is passed over.
    assert lowest_by_layer(layers, everything, 5).tolist() == [1, 6, 2, 4, 0]
    some = everything.index_fill(0, torch.tensor([4, 6]), False)
    assert lowest_by_layer(layers, some, 5).tolist() == [1, 5, 2, 3, 0]


# O3


def test_o3_trains_a_wrong_answer_to_the_same_question():
    examples = tuple(
        Example(f"{e.prompt}", e.answer, wrong_answers=(f" wrong {i}", f" other {i}"))
        for i, e in enumerate(STREAM[0].examples)
    )
    targets = o3_targets(Request("a", examples))
    for i, answer in enumerate(targets):
        assert answer in (f" wrong {i}", f" other {i}")
    assert len({answer.split()[0] for answer in targets}) == 2
    plain = Request("a", tuple(replace(e, wrong_answers=()) for e in examples))
    before = o3_targets(Request("a", examples), use_wrong_answers=False)
    assert before == o3_targets(plain) == o3_targets(plain, use_wrong_answers=False)


def o3_targets(request: Request, **settings) -> list[str]:
    net = make("o3", **settings)
    net._examples = request.examples
    (forget,) = net.prepare([request])
    return [
        net.tokenizer.decode(target.ids[target.answer_start :], skip_special_tokens=True)
        for target in net._targets(forget)
    ]


# What was there before


@pytest.mark.parametrize("name", method_names())
def test_a_record_of_before_means_the_behaviour_of_before(name):
    config = find_method(name).config_class
    published = config.preset("published")
    record = published.filed_under()
    assert not set(record) & set(config._before())
    assert config.from_record(record) == published
    assert config.from_record(config().to_dict()) == config()
