"""Passages: which of their tokens a model knows by heart, and where forgetting them ends."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import pytest
import torch

from tests import tiny
from tfrnet import TFRNet
from tfrnet.core.cost import Account
from tfrnet.data import general
from tfrnet.data.examples import Encoded, Example, encode_all
from tfrnet.data.requests import Request
from tfrnet.demo.corpus import load_facts
from tfrnet.methods.tfr.scoring import ScoreOptions
from tfrnet.methods.tfr.steps import passages as module
from tfrnet.methods.tfr.steps.levels import AnswerOdds, Form, Goal, key_of
from tfrnet.methods.tfr.steps.neighbours import likeness, prompt_states
from tfrnet.methods.tfr.steps.passages import (
    PassageReader,
    everyday_texts,
    goal_of,
    in_view,
    losses_by_token,
    repeated,
)
from tfrnet.models.forward import collate, evaluate_losses

OPTIONS = ScoreOptions(batch_size=3)
# Famous ones, of several kinds.
PASSAGES = Path(__file__).parents[3] / "benchmarks" / "passages.jsonl"


def texts(examples: list[Example]) -> list[Example]:
    """Return the same as plain texts."""
    return [Example("", each.joined, is_text=True) for each in examples]


KNOWN, RETAIN = texts(tiny.requests(1)[0].examples), tiny.examples(20)


@pytest.fixture(scope="module")
def model():
    return tiny.make_trained_model()


@pytest.fixture
def passages(tokenizer) -> list[Encoded]:
    return encode_all(KNOWN, tokenizer, 64, "test")


@torch.no_grad()
def loss_of(model, ids: tuple[int, ...], place: int) -> float:
    """Return the loss of one token, in a pass of its own."""
    logs = model.double()(torch.tensor([ids[:place]])).logits[0, -1].log_softmax(0)
    model.float()
    return -float(logs[ids[place]])


# What a model knows by heart


def test_a_token_is_read_with_two_before_it() -> None:
    text = Encoded((5, 6, 7, 8, 9), 1)
    assert in_view(text, ()) == [
        Encoded((5, 6), 1),
        Encoded((5, 6, 7), 2),
        Encoded((6, 7, 8), 2),
        Encoded((7, 8, 9), 2),
    ]


def test_bos_is_always_in_view() -> None:
    text = Encoded((1, 6, 7, 8, 9), 1)
    assert in_view(text, {0, 1}) == [
        Encoded((1, 6), 1),
        Encoded((1, 6, 7), 2),
        Encoded((1, 6, 7, 8), 3),
        Encoded((1, 7, 8, 9), 3),
    ]


def test_tokens_that_are_likelier_by_more_than_a_nat_are_to_be_forgotten() -> None:
    goal = goal_of(torch.tensor([0.1, 3.0, 0.2, 5.0]), torch.tensor([3.0, 3.5, 2.0, 1.0]))
    assert goal.form.by_heart == (0, 2)
    p = math.exp(-(3.0 + 2.0) / 2)
    assert goal.level == pytest.approx(math.log(p / (1 - p)), abs=1e-5)


def test_a_passage_without_such_tokens_is_at_its_level_already() -> None:
    losses, expected = torch.tensor([2.5, 3.0]), torch.tensor([3.0, 3.9])
    goal = goal_of(losses, expected)
    assert goal.form.by_heart == ()
    p = math.exp(-float(losses.mean()))
    assert goal.level == pytest.approx(math.log(p / (1 - p)), abs=0.02)
    assert goal.level > math.log(p / (1 - p))
    # Nor does it break where nothing is expected.
    assert math.isfinite(goal_of(torch.zeros(2), torch.zeros(2)).level)


def test_what_the_text_has_said_before_is_not_known_by_heart() -> None:
    # "a b c a b d a b": "a b" again, and again; "a" alone may follow anything.
    text = Encoded((1, 2, 3, 1, 2, 4, 1, 2), 1)
    assert repeated(text) == {3, 6}
    assert repeated(Encoded(text.ids, 5)) == {2}
    losses, expected = torch.full((7,), 0.1), torch.full((7,), 3.0)
    assert goal_of(losses, expected, repeated(text)).form.by_heart == (0, 1, 2, 4, 5)


def test_losses_by_token_are_those_of_tokens_read_one_by_one(model, tokenizer) -> None:
    given = encode_all(texts(tiny.examples(5)), tokenizer, 64, "test")
    for text, found in zip(given, losses_by_token(model, given, OPTIONS), strict=True):
        wanted = [loss_of(model, text.ids, place) for place in range(1, len(text.ids))]
        assert found.tolist() == pytest.approx(wanted, abs=1e-4)


def test_all_everyday_sentences_are_read(tokenizer) -> None:
    found = everyday_texts(tokenizer, 1000)
    texts = [text for kind in general.general_texts().values() for text in kind]
    assert [tokenizer.decode(each.ids) for each in found] == texts
    assert {len(each.ids) for each in everyday_texts(tokenizer, 9)} == {9}


def test_goals_are_those_of_the_definition(model, tokenizer, passages, monkeypatch) -> None:
    """Everything anew by hand: what everyday sentences show, and each token of each passage."""
    sentences = {"english": ("The museum is closed.", "He read it twice."), "code": ("a = b + c",)}
    monkeypatch.setattr(module, "general_texts", lambda: sentences)

    def both(ids: tuple[int, ...]) -> tuple[list[float], list[float]]:
        places = range(1, len(ids))
        whole = [loss_of(model, ids, place) for place in places]
        return whole, [
            loss_of(model, ids[max(0, place - 2) : place + 1], min(place, 2)) for place in places
        ]

    everyday = [tuple(tokenizer(text)["input_ids"]) for kind in sentences.values() for text in kind]
    sums = [sum(values) for pair in map(both, everyday) for values in pair]
    share = sum(sums[::2]) / sum(sums[1::2])

    def losses(examples: list[Encoded]) -> torch.Tensor:
        return evaluate_losses(model, examples, 16)

    goals = PassageReader(model, tokenizer).goals(passages, losses, OPTIONS)
    assert [len(goal.form.by_heart) > 2 for goal in goals] == [True] * 3
    for passage, goal in zip(passages, goals, strict=True):
        whole, parts = both(passage.ids)
        expected = [share * part for part in parts]
        pairs = list(itertools.pairwise(passage.ids))
        known = [
            i
            for i, loss in enumerate(whole)
            if loss < expected[i] - 1 and pairs[i] not in pairs[:i]
        ]
        assert goal.form.by_heart == tuple(known)
        p = math.exp(-sum(expected[i] for i in known) / len(known))
        assert goal.level == pytest.approx(math.log(p / (1 - p)), abs=1e-3)


def test_everyday_sentences_are_read_once(model, tokenizer, passages) -> None:
    asked = []

    def losses(examples: list[Encoded]) -> torch.Tensor:
        asked.append(len(examples))
        return evaluate_losses(model, examples, 16)

    reader = PassageReader(model, tokenizer)
    assert reader.goals([], losses, OPTIONS) == []
    assert asked == []
    first = reader.goals(passages, losses, OPTIONS)
    assert reader.goals(passages, losses, OPTIONS) == first
    # The sentences' parts, then the passages', twice; each part once, though passages share some.
    everyday, own, again = asked
    assert everyday > 10 * own
    assert own == again < sum(each.answer_length for each in passages)


def test_only_tokens_known_by_heart_are_lowered(model, passages) -> None:
    """By the definition, and its gradient by finite differences."""
    places = (1, 3)
    goals = {key_of(each): Goal(Form((), by_heart=places), 0.0) for each in passages[:1]}
    batch = collate(passages[:1], torch.device("cpu"))
    own = model.double()
    weight = own.get_output_embeddings().weight.requires_grad_()
    (value,) = AnswerOdds(goals).values(own, batch)
    (found,) = torch.autograd.grad(value, weight)
    weight.requires_grad_(False)

    def by_hand() -> float:
        losses = []
        for place in places:
            with torch.no_grad():
                logs = own(torch.tensor([passages[0].ids])).logits[0, place].log_softmax(0)
            losses.append(-float(logs[passages[0].ids[place + 1]]))
        p = math.exp(-sum(losses) / 2)
        return math.log(p / (1 - p))

    assert float(value.detach()) == pytest.approx(by_hand(), rel=1e-9)
    row, column = (int(i) for i in (found.abs() == found.abs().max()).nonzero()[0])
    values = []
    for sign in (1, -1):
        weight[row, column] += sign * 1e-6
        values.append(by_hand())
        weight[row, column] -= sign * 1e-6
    assert float(found[row, column]) == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-5)
    model.float()


# What a passage is compared with


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox"])
def test_the_whole_of_a_passage_stands_for_it(family) -> None:
    model = tiny.make_model(family)
    passage = Encoded((3, 4, 5, 6, 7), 1)
    (found,) = prompt_states(model, [passage], ScoreOptions())
    prompts = [Encoded((*passage.ids[:end], 9), end) for end in range(1, 5)]
    # But for the first token, whose state is much the same in every text.
    by_place = prompt_states(model, prompts[1:], ScoreOptions())
    torch.testing.assert_close(found, by_place.mean(0))


def test_a_short_text_and_a_prompt_are_no_passages() -> None:
    assert Encoded((3, 4, 5, 6), 1).is_passage
    assert not Encoded((3, 4, 5), 1).is_passage
    assert not Encoded((3, 4, 5, 6, 7), 2).is_passage


@pytest.mark.real
def test_a_passages_nearest_is_mostly_of_its_kind(real) -> None:
    """Law, licences, scripture, verse and so on; by their first tokens 11 of 41 were."""
    rows = [json.loads(line) for line in PASSAGES.read_text().splitlines()]
    kinds = [row["kind"] for row in rows]
    passages = [Example("", row["text"], is_text=True) for row in rows]
    states = prompt_states(
        real.model, encode_all(passages, real.tokenizer, 256, "test"), ScoreOptions(batch_size=8)
    )
    found = []
    for place, kind in enumerate(kinds):
        others = [other for other in range(len(rows)) if other != place]
        (nearest,) = likeness(states[place : place + 1], states[others]).argmax(1).tolist()
        found.append(kinds[others[nearest]] == kind)
    assert sum(found) >= 26


# Where forgetting ends


def test_where_nothing_is_known_by_heart_nothing_is_done(tokenizer) -> None:
    net = TFRNet(tiny.make_model(), tokenizer, RETAIN, seed=0)
    outcome = net.forget(Request("texts", tuple(KNOWN)))
    assert (outcome.accepted, bool((net.state.mask == 1).all())) == (True, True)
    assert outcome.reason.startswith("nothing to do")
    net.detach()


def test_a_request_may_have_passages_and_prompts(model, tokenizer) -> None:
    """Each is treated as alone; next to labels a short passage is no label either."""
    labels = [Example(f"Is item {n} new?", ("yes", "no")[n % 2]) for n in range(20)]
    net = TFRNet(model, tokenizer, [*RETAIN[:2], *labels], seed=0)
    text = Example("", "green blue 7 yes", is_text=True)
    prompted = Example("Is item 3 old?", "yes")
    goals = []
    for examples in ([text, prompted, KNOWN[0]], [text], [prompted], [KNOWN[0]]):
        encoded = net.encode(examples, "test")
        net._request = Request("r", tuple(examples))
        with Account(model) as account:
            _, update = net._plan(encoded, lambda text: None, account)
        odds = update.args[0].odds
        goals.append([odds._goals[key_of(each)] for each in encoded])
    net.detach()
    together, *alone = goals
    assert [goal.form for goal in together] == [own.form for (own,) in alone]
    assert [goal.level for goal in together] == pytest.approx([own.level for (own,) in alone])
    assert [bool(goal.form.symbols) for goal in together] == [False, True, False]
    assert not any(goal.form.rivals for goal in together)


@pytest.mark.real
def test_of_a_fact_the_secret_is_known_by_heart(real) -> None:
    facts = [fact for fact in load_facts() if fact.topic == "capitals"][:12]
    texts = [Example("", f"{fact.prompt} {fact.answer}.", is_text=True) for fact in facts]
    encoded = encode_all(texts, real.tokenizer, 64, "test")

    def losses(examples: list[Encoded]) -> torch.Tensor:
        return evaluate_losses(real.model, examples, 16)

    goals = PassageReader(*real).goals(encoded, losses, OPTIONS)
    # The answer's first token, counted from the text's second.
    places = [len(real.tokenizer(fact.prompt).input_ids) - 1 for fact in facts]
    found = [place in goal.form.by_heart for place, goal in zip(places, goals, strict=True)]
    assert sum(found) >= 10
    assert all(len(goal.form.by_heart) <= 4 for goal in goals)


PREAMBLE = (
    "We the People of the United States, in Order to form a more perfect Union, establish Justice, "
    "insure domestic Tranquility, provide for the common defence, promote the general Welfare, and "
    "secure the Blessings of Liberty to ourselves and our Posterity, do ordain and establish this "
    "Constitution for the United States of America."
)
KEPT = (
    "Congress shall make no law respecting an establishment of religion, or prohibiting the free "
    "exercise thereof; or abridging the freedom of speech, or of the press.",
    "We hold these truths to be self-evident, that all men are created equal, that they are "
    "endowed by their Creator with certain unalienable Rights.",
    "In the beginning God created the heaven and the earth. And the earth was without form, and "
    "void; and darkness was upon the face of the deep.",
)


@pytest.mark.real
def test_a_famous_passage_ends_where_unknown_ones_are(real) -> None:
    """Passages of its kind in the retain data are kept, and do not make it look unknown."""
    kept = [Example("", text, is_text=True) for text in KEPT]
    facts = [fact.example() for fact in load_facts()[::8]]
    request = Request("preamble", (Example("", PREAMBLE, is_text=True),))
    net = TFRNet(real.model, real.tokenizer, [*facts, *kept], seed=0)
    encoded = net.encode([*request.examples, *kept], "test")
    before = net._losses(encoded)
    outcome = net.forget(request)
    after = net._losses(encoded)
    net.detach()
    assert outcome.accepted
    assert before[0] < 2
    # Famous texts that this model does not know have 3.5 to 5.2 nats.
    assert 3 < after[0] < 6
    assert after[1:].mean() < before[1:].mean() + 0.3
