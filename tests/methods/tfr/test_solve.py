"""The solved step on a small model: what it asks of the margins is what they do."""

from dataclasses import replace

import pytest
import torch

from tests import tiny
from tfrnet import Example, InputError, Request, TFRConfig, TFRNet
from tfrnet.data.examples import Encoded, encode
from tfrnet.method_state import verify_state
from tfrnet.methods.tfr.steps.margins import (
    Rivals,
    answer_tokens,
    label_tokens,
    log_odds,
    without_depth,
)
from tfrnet.methods.tfr.steps.solved import wanted_falls
from tfrnet.methods.tfr.trial_model import TrialModel
from tfrnet.models.forward import answer_logits, collate, evaluate_losses
from tfrnet.session import Session

RETAIN, GUARD = tiny.examples(6), tiny.examples(5, offset=50)
CONFIG = TFRConfig(
    step="solve", budget=10_000, hold_guard=True, guard_relative=0.3, guard_absolute=0
)


def make_net(config=CONFIG, **options):
    model = tiny.make_trained_model()
    return TFRNet(model, tiny.make_tokenizer(), RETAIN, config, guard=GUARD, **options)


class Margins:
    """The weakest margins of a request, over rivals as they were when this was made."""

    def __init__(self, net, request):
        (encoded,) = net.prepare([request])
        self.model, self.batch = net.model, collate(encoded, torch.device("cpu"))
        self.rivals = Rivals(answer_tokens(net._retain_encoded))
        self.before = self()

    def __call__(self):
        with torch.no_grad():
            return self.rivals.weakest_margins(self.model, self.batch)


def test_a_small_step_lowers_every_margin_as_far_as_asked():
    """First order: halving what is asked for divides the error by about four."""
    (request,) = tiny.requests(1)
    errors = []
    for asked in (0.2, 0.1):
        config = replace(CONFIG, steps=1, step_margin=asked, forget_stiffness=1e4, use_guard=False)
        net = make_net(config)
        margins = Margins(net, request)
        net.forget(request)
        fallen = margins.before - margins()
        assert fallen.tolist() == pytest.approx([asked] * len(fallen), rel=0.25)
        errors.append(float((fallen - asked).abs().max()))
    assert errors[1] < 0.5 * errors[0]


def test_retain_examples_move_less_than_without_their_rows():
    (request,) = tiny.requests(1)

    def moved(**changes):
        net = make_net(replace(CONFIG, steps=1, step_margin=0.2, use_guard=False, **changes))
        encoded = net._retain_encoded
        before = log_odds(evaluate_losses(net.model, encoded, 8))
        net.forget(request)
        return float((log_odds(evaluate_losses(net.model, encoded, 8)) - before).norm())

    assert moved(retain_stiffness=1e4) < 0.5 * moved(retain_stiffness=0.0)


def test_steps_go_on_until_every_example_is_forgotten():
    (request,) = tiny.requests(1)
    shallow = replace(CONFIG, steps=30, step_margin=1.0, forget_margin=-1.0, deep_margin=100.0)
    net = make_net(replace(shallow, use_guard=False))
    margins = Margins(net, request)
    outcome = net.forget(request)
    assert float(margins().max()) <= -0.95
    assert 1 < outcome.attempts < 30


def test_going_deeper_begins_with_the_mean_margins(monkeypatch):
    """Where the margins are all reached, the same mask is asked again, for all tokens."""
    asked = []
    ask = TrialModel.forget_gradients

    def note(self, mask, objective):
        asked.append((mask, objective.__name__))
        return ask(self, mask, objective)

    monkeypatch.setattr(TrialModel, "forget_gradients", note)
    (request,) = tiny.requests(1)
    config = replace(CONFIG, steps=8, forget_margin=-1.0, deep_margin=-6.0, use_guard=False)
    make_net(config).forget(request)
    names = [name for _, name in asked]
    first = names.index("mean_margins")
    assert names[:first] == ["weakest_margins"] * first
    assert set(names[first:]) == {"mean_margins"}
    assert asked[first][0] is asked[first - 1][0]


def test_what_is_cheap_goes_deeper():
    (request,) = tiny.requests(1)
    # Without retain rows: this model has too few channels to spare any for them.
    config = replace(CONFIG, steps=8, forget_margin=-1.0, deep_margin=-6.0, use_retain=False)

    def forget_loss(cheap_share):
        net = make_net(replace(config, guard_relative=100.0, cheap_share=cheap_share))
        return net.forget(request).forget_loss_after

    assert forget_loss(1.0) > 1.2 * forget_loss(0.0)


def test_a_step_asks_for_the_way_to_the_target_and_a_little_more_but_not_too_far():
    falls = wanted_falls(torch.tensor([5.0, 0.0, -3.0, -4.0]), -3.0, 6.0)
    assert falls.tolist() == [6.0, 3.5, 0.0, 0.0]


def test_one_token_goes_no_deeper_unless_asked():
    """All tokens of longer answers go on to the deep margin; a single one only if told to."""
    config = replace(CONFIG, steps=12, forget_margin=-1.0, deep_margin=-12.0, use_retain=False)
    config = replace(config, deep_rivals=1, use_guard=False)

    def forget_loss(answer, deep_margin, labels=False):
        net = make_net(replace(config, deep_margin=deep_margin, labels=labels))
        request = Request("r", (Example("Item 3 of the old box is", answer),))
        (encoded,) = net.prepare([request])
        return encoded[0].answer_length, net.forget(request).forget_loss_after

    length, shallow = forget_loss("white", 0.0)
    assert length == 1
    assert forget_loss("white", -12.0) == (1, shallow)
    # No two retained answers are this word.
    assert forget_loss("white", -12.0, labels=True)[1] > shallow + 2
    length, shallow = forget_loss("white 21", 0.0)
    assert length > 1
    assert forget_loss("white 21", -12.0)[1] > shallow + 2


def test_labels_are_answers_of_one_token_that_several_retained_examples_give():
    def encoded(*answer):
        prompt = (1, 2, 3)
        return Encoded((*prompt, *answer), len(prompt))

    retain = [encoded(7), encoded(7), encoded(8), encoded(9, 9), encoded(9, 9)]
    assert label_tokens(retain) == {7}
    forget = [encoded(7), encoded(8), encoded(7, 8)]
    assert without_depth(forget, None).tolist() == [True, True, False]
    assert without_depth(forget, {7}).tolist() == [True, False, False]


def test_the_rivals_of_a_label_are_the_other_labels():
    model, tokenizer = tiny.make_trained_model(), tiny.make_tokenizer()
    examples = [tiny.Example("Item 3 of the old box is", word) for word in ("white", "white 21")]
    encoded = [encode(example, tokenizer, 64) for example in examples]
    word = encoded[0].ids[-1]
    batch = collate(encoded, torch.device("cpu"))
    other = next(iter(answer_tokens(encode(e, tokenizer, 64) for e in RETAIN) - {word}))
    with torch.no_grad():
        plain = Rivals(set(), 3).mean_margins(model, batch)
        among = Rivals(set(), 3, {word, other}).mean_margins(model, batch)
        logits = answer_logits(model, batch)
    # The label's only rival stands for all three; the longer answer's are any tokens.
    assert float(among[0]) == pytest.approx(float(logits[0, word] - logits[0, other]))
    assert float(among[0]) != pytest.approx(float(plain[0]))
    assert float(among[1]) == pytest.approx(float(plain[1]))


def test_guard_examples_are_held_each_by_itself():
    (request,) = tiny.requests(1)

    def moved(hold_guard):
        config = replace(CONFIG, steps=1, step_margin=0.1, use_guard=False, retain_stiffness=1e4)
        net = make_net(replace(config, hold_guard=hold_guard))
        before = log_odds(evaluate_losses(net.model, net._guard_encoded, 8))
        net.forget(request)
        return float((log_odds(evaluate_losses(net.model, net._guard_encoded, 8)) - before).norm())

    assert moved(True) < 0.5 * moved(False)


def test_a_request_goes_on_with_shorter_steps_when_the_guard_has_shortened_one():
    """What the first step took from the guard is given back, so there is room for more."""
    (request,) = tiny.requests(1)

    def after(steps):
        outcome = make_net(replace(CONFIG, guard_relative=0.02, steps=steps)).forget(request)
        assert outcome.accepted
        assert outcome.guard_loss_after <= 1.02 * outcome.guard_loss_before
        return outcome

    first, last = after(1), after(8)
    assert first.attempts > 1
    assert last.attempts > first.attempts
    rises = [each.forget_loss_after - each.forget_loss_before for each in (first, last)]
    assert rises[1] > 1.3 * rises[0] > 0


def test_earlier_requests_are_kept_from_coming_back():
    first, other = tiny.requests(2)
    config = replace(CONFIG, steps=9, forget_margin=-1.0, deep_margin=100.0, use_guard=False)
    config = replace(config, retain_examples=2, hold_guard=False, memory_stiffness=1e3)

    def moved_afterwards(**changes):
        net = make_net(replace(config, **changes))
        margins = Margins(net, first)
        net.forget(first)
        then = margins()
        assert float(then.max()) < -0.9
        # A step so small that gradients foresee it.
        net.config = replace(net.config, steps=1, step_margin=0.2)
        net.forget(other)
        return float((margins() - then).abs().mean())

    assert moved_afterwards(memory_rows=40) < 0.3 * moved_afterwards(memory_rows=0)
    without = moved_afterwards(memory_rows=0, use_history=False)
    assert moved_afterwards(memory_rows=40, use_history=False) == without


def test_what_was_not_forgotten_is_not_remembered():
    (request,) = tiny.requests(1)
    config = replace(CONFIG, steps=1, step_margin=0.01, use_guard=False, memory_rows=5)
    net = make_net(config)
    assert float(Margins(net, request).before.min()) > 0.01
    net.forget(request)
    assert not net.state.tensors()["forgotten"].any()


@pytest.mark.slow
def test_what_is_remembered_is_bounded_and_part_of_the_state(tmp_path):
    config = replace(CONFIG, memory_rows=5)
    requests = tiny.requests(3, size=3)
    net = make_net(config)
    sizes = []
    for request in requests:
        net.forget(request)
        sizes.append(tuple(net.state.tensors()["forgotten"].shape))
    assert sizes == [(rows, net.mask.index.total) for rows in (3, 5, 5)]
    assert bool(net.state.forgotten.any())
    first = make_net(config)
    first.forget(requests[0])
    first.save(tmp_path / "state.safetensors")
    second = make_net(config)
    second.load(tmp_path / "state.safetensors")
    for request in requests[1:]:
        second.forget(request)
    assert second.state.digest() == net.state.digest()
    with Session(
        tiny.make_trained_model(), tiny.make_tokenizer(), tmp_path / "s", RETAIN, config=config
    ) as session:
        session.forget(requests[0])
    assert [check for check in verify_state(tmp_path / "s") if not check.passed] == []


def test_the_guard_shortens_a_step():
    (request,) = tiny.requests(1)
    net = make_net(replace(CONFIG, guard_relative=0.01))
    outcome = net.forget(request)
    assert outcome.accepted
    assert outcome.attempts > 1
    assert outcome.guard_loss_after <= 1.01 * outcome.guard_loss_before
    assert outcome.forget_loss_after > outcome.forget_loss_before


def test_a_guard_that_allows_nothing_rejects_and_restores():
    net = make_net(replace(CONFIG, guard_relative=0.0, backtracks=0, step_margin=20.0))
    before = net.state.digest()
    (request,) = tiny.requests(1)
    outcome = net.forget(request)
    assert not outcome.accepted
    assert net.state.digest() == before
    assert torch.equal(net.mask.values, torch.ones_like(net.mask.values))


def test_at_most_budget_channels_move():
    (request,) = tiny.requests(1)
    net = make_net(replace(CONFIG, budget=7, steps=1, use_guard=False))
    outcome = net.forget(request)
    assert 0 < outcome.selected <= 7


@pytest.mark.slow
def test_recovery_raises_suppressed_channels_and_can_be_switched_off():
    def recovered(**changes):
        net = make_net(replace(CONFIG, **changes))
        return [net.forget(request).recovered for request in tiny.requests(3)]

    assert recovered()[0] == 0  # nothing was suppressed before the first request
    assert sum(recovered()) > 0
    assert sum(recovered(use_recovery=False)) == 0


@pytest.mark.slow
def test_a_state_that_was_put_down_and_taken_up_again_goes_on_the_same(tmp_path):
    requests = tiny.requests(3)
    whole = make_net()
    for request in requests:
        whole.forget(request)
    first = make_net()
    first.forget(requests[0])
    first.save(tmp_path / "state.safetensors")
    second = make_net()
    second.load(tmp_path / "state.safetensors")
    for request in requests[1:]:
        second.forget(request)
    assert second.state.digest() == whole.state.digest()


def test_settings_of_another_step_are_not_among_those_that_count():
    fisher = TFRConfig(step="fisher")
    assert "forget_margin" not in fisher.effective()
    assert "forget_margin" in CONFIG.effective()
    assert "forget_margin" in fisher.to_dict()


def test_a_budget_of_zero_moves_nothing_and_says_so():
    net = make_net(replace(CONFIG, budget=0))
    outcome = net.forget(tiny.requests(1)[0])
    assert outcome.accepted
    assert outcome.selected == outcome.attempts == 0
    assert "the budget is 0" in outcome.reason
    assert bool((net.state.mask == 1).all())
    assert bool(net.state.tensors()["risk"].any())


def test_the_time_of_a_request_is_told_by_what_it_went_to():
    """All that asks the model, and the solver, is some stage's: little is left over."""
    (request,) = tiny.requests(1)
    seconds = make_net().forget(request).seconds
    total = seconds.pop("total")
    assert set(seconds) == {
        *("score", "guard_gradients", "margins", "retain_loss", "solve", "guard", "forget_loss")
    }
    assert 0.7 * total < sum(seconds.values()) <= total + 0.001


def test_a_state_of_another_model_is_refused_and_the_present_one_stays(tmp_path):
    other = TFRNet(tiny.make_model("gpt2"), tiny.make_tokenizer(), RETAIN, CONFIG)
    other.save(str(tmp_path / "other.safetensors"))
    net = make_net()
    (request,) = tiny.requests(1)
    net.forget(request)
    before = net.state.digest()
    with pytest.raises(InputError, match="is not a state of this model"):
        net.load(str(tmp_path / "other.safetensors"))
    assert net.state.digest() == before
    assert net.requests_seen == 1
