"""Every attack against its own definition, on a small model that knew the items and forgot some."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from statistics import fmean
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests import tiny
from tests.datasets import made_up_folder
from tests.evaluation.reference import answer_log_probs, trained_on, watch_passes
from tfrnet.core.errors import InputError
from tfrnet.data.examples import encode
from tfrnet.data.protocol import Sizes, make_split
from tfrnet.data.sources import Source
from tfrnet.data.tasks import find_task
from tfrnet.data.tasks.lume import Lume
from tfrnet.evaluation import suite
from tfrnet.evaluation.attacking.attack import ATTACKS
from tfrnet.evaluation.attacking.relearning import RelearnOptions, relearn
from tfrnet.evaluation.attacking.subject import Attacked, AttackOptions, Subject
from tfrnet.evaluation.attacks.insist import DOUBTS
from tfrnet.evaluation.attacks.quantise import SCHEMES
from tfrnet.evaluation.attacks.rescale import rescaled
from tfrnet.evaluation.cache import Cache
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.plan import Options, Plan, make_plan
from tfrnet.evaluation.robustness import (
    attacks_that_fit,
    check_attacks,
    relearning_figures,
    run_attacks,
)
from tfrnet.evaluation.suite import measure
from tfrnet.masking.channels import find_channels
from tfrnet.masking.digest import model_digest
from tfrnet.masking.mask import ChannelMask
from tfrnet.models.load import LoadedModel

SIZES = Sizes(requests=4, request_size=2, forget_eval=6, heldout=9, retain=(4, 4), guard=(2, 2))
OPTIONS = AttackOptions(relearn_steps=(0, 3), relearn_seeds=2)
NAMES = ("unmask", "rescale", "quantise", "prompts", "few-shot", "insist", "relearn")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return Source("folder", made_up_folder(tmp_path_factory.mktemp("data")))


@pytest.fixture(scope="module")
def split(source):
    return make_split("openbookqa", 2, source, SIZES)


def make_trained(split):
    """A model that knows what is to be forgotten."""
    return trained_on([item.example().joined for item in split.forget], 45)


def mask_values(total):
    """Most channels as they were, some soft, some dormant, some off."""
    generator = torch.Generator().manual_seed(0)
    picks = torch.rand(total, generator=generator)
    values = torch.ones(total)
    values[picks < 0.35] = 0.5
    values[picks < 0.25] = 0.08
    values[picks < 0.1] = 0.0
    return values


@pytest.fixture(scope="module")
def subject(split, tokenizer):
    """One for all tests: each must leave it as it was."""
    model = make_trained(split)
    with ChannelMask(model, find_channels(model)) as mask:
        mask.set(mask_values(mask.index.total))
        yield Subject(Evaluator(LoadedModel(model, tokenizer)), mask, split, OPTIONS)


@pytest.fixture(autouse=True)
def _unharmed(subject):
    before = snapshot(subject.mask)
    yield
    assert_unharmed(subject.mask, before)


# Plain ways to get the same numbers


@pytest.fixture(scope="module")
def folded_weights(split):
    """The mask multiplied into the rows of the projections, by hand."""
    model = make_trained(split)
    index = find_channels(model)
    values = mask_values(index.total)
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for projection in index:
        part = values[projection.start : projection.start + projection.width]
        weights[f"{projection.name}.weight"] *= part[:, None]
    return weights


def with_weights(weights):
    model = tiny.make_model()
    model.load_state_dict(weights)
    return model


def found_right(model, items, room=256):
    """Return which items are answered right."""
    chosen = answers_of(model, items, room)
    return [answer == item.answer for answer, item in zip(chosen, items, strict=True)]


def answers_of(model, items, room=256):
    """Rank by log-likelihood per character (the headline of OpenBookQA), one pass a candidate."""
    tokenizer = tiny.make_tokenizer()
    chosen = []
    for item in items:
        start = len(tokenizer(item.prompt)["input_ids"])
        choices = [tokenizer(f"{item.prompt} {choice}")["input_ids"] for choice in item.choices]
        # The longest choice decides for all, so that they follow the same prompt.
        surplus = max(0, max(map(len, choices)) - room)
        scores = [
            sum(answer_log_probs(model, ids[surplus:], start - surplus)) / len(choice)
            for choice, ids in zip(item.choices, choices, strict=True)
        ]
        chosen.append(item.choices[int(np.argmax(scores))])
    return chosen


def percent(model, items, room=256):
    """Return the accuracy in percent."""
    return 100 * fmean(found_right(model, items, room))


def assert_unharmed(mask, before):
    digest, values, places = before
    assert model_digest(mask.model) == digest
    assert torch.equal(mask.values, values)
    assert {name: p.data_ptr() for name, p in mask.model.named_parameters()} == places
    assert not any(p.grad is not None for p in mask.model.parameters())


def snapshot(mask):
    places = {name: p.data_ptr() for name, p in mask.model.named_parameters()}
    return model_digest(mask.model), mask.values.clone(), places


# The subject


def test_the_attacker_has_two_requests_and_the_rest_is_measured(subject, split):
    assert subject.known == list(split.forget[:4])
    assert subject.hidden == list(split.forget[4:])
    assert subject.heldout == list(split.heldout["openbookqa"])
    assert subject.other == list(split.heldout["arithmetic"])


def test_of_a_short_stream_the_attacker_has_half(subject, source):
    sizes = Sizes(2, 3, forget_eval=2, heldout=3, retain=(2, 2), guard=(1, 1))
    short = make_split("openbookqa", 0, source, sizes)
    found = Subject(subject.evaluator, subject.mask, short, OPTIONS)
    assert (len(found.known), len(found.hidden)) == (3, 3)


@pytest.fixture(scope="module")
def plain(split, folded_weights):
    return percent(with_weights(folded_weights), split.forget[4:])


@pytest.fixture(scope="module")
def untouched(split):
    return percent(make_trained(split), split.forget[4:])


def test_plain_and_untouched_accuracy(subject, plain, untouched):
    assert (subject.plain, subject.original) == (plain, untouched)
    # Something was known, and forgotten in part, so that the attacks have something to do.
    assert plain < untouched


def test_a_limit_measures_the_first_items(subject, split):
    few = Subject(subject.evaluator, subject.mask, split, AttackOptions(limit=2))
    assert few.hidden == list(split.forget[4:6])
    with pytest.raises(InputError, match="--limit 5 is larger than the 4 forgotten items"):
        Subject(subject.evaluator, subject.mask, split, AttackOptions(limit=5))


# Every attack


@pytest.fixture(scope="module")
def rows(subject):
    """What all attacks give; the model is looked at after each."""
    before = snapshot(subject.mask)
    found = {}
    for name in NAMES:
        found[name] = run_attacks(subject, [name])
        assert_unharmed(subject.mask, before)
    return found


def test_there_is_an_attack_for_everything_that_is_asked_for():
    assert attacks_that_fit(has_mask=True) == NAMES


def test_every_row_stands_beside_the_plain_figures(rows, plain, untouched):
    for name, found in rows.items():
        assert found
        for row in found:
            assert (row.attack, row.plain, row.untouched) == (name, plain, untouched)
            assert 0 <= row.attacked <= 100
            expected = (row.attacked - plain) / (untouched - plain)
            assert row.recovery == pytest.approx(expected)
            assert (row.untouched_attacked is None) == (name == "unmask")
    variants = [(row.attack, row.variant) for found in rows.values() for row in found]
    assert len(variants) == len(set(variants))


def test_unmasking_gives_the_untouched_model(rows, untouched):
    (row,) = rows["unmask"]
    assert row.attacked == row.untouched == untouched
    assert row.recovery == 1


def test_rescaling_brings_rows_to_the_median_length(rows, split, folded_weights):
    index = find_channels(tiny.make_model())
    values = mask_values(index.total)
    hidden = split.forget[4:]

    def attacked(weights):
        weights = {name: tensor.clone() for name, tensor in weights.items()}
        for projection in index:
            weight = weights[f"{projection.name}.weight"]
            lengths = weight.norm(dim=1)
            middle = np.median(lengths[lengths > 0].numpy())
            for number, length in enumerate(lengths):
                if length > 0:
                    weight[number] *= middle / length
        return percent(with_weights(weights), hidden)

    hardened = {name: tensor.clone() for name, tensor in folded_weights.items()}
    for projection in index:
        part = values[projection.start : projection.start + projection.width]
        hardened[f"{projection.name}.weight"][part <= 0.1] = 0
    soft, hard = rows["rescale"]
    assert (soft.variant, hard.variant) == ("soft", "hardened")
    assert soft.attacked == attacked(folded_weights)
    assert hard.attacked == attacked(hardened)
    control = attacked(make_trained(split).state_dict())
    assert soft.untouched_attacked == hard.untouched_attacked == control


@pytest.mark.parametrize(("name", "bits"), [("int4-row", 4), ("int3-tensor", 3)])
def test_quantising_rounds_every_projection_of_the_folded_model(
    rows, split, folded_weights, name, bits
):
    assert [row.variant for row in rows["quantise"]] == [scheme.name for scheme in SCHEMES]
    (row,) = [row for row in rows["quantise"] if row.variant == name]

    def attacked(weights):
        weights = dict(weights)
        for part, weight in weights.items():
            if part.endswith("_proj.weight"):
                groups = weight if name.endswith("row") else weight.reshape(1, -1)
                step = groups.abs().amax(1, keepdim=True) / 2 ** (bits - 1)
                whole = (groups / step.clamp(min=1e-30)).round()
                whole = whole.clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
                weights[part] = (whole * step).reshape(weight.shape)
        return percent(with_weights(weights), split.forget[4:])

    assert row.attacked == attacked(folded_weights)
    assert row.untouched_attacked == attacked(make_trained(split).state_dict())


def test_prompts_ask_in_other_words(rows, split, folded_weights):
    task, hidden = find_task("openbookqa"), split.forget[4:]
    names = ["original", *task.rephrased(hidden[0])]
    assert len(names) == 5
    found = {row.variant: row for row in rows["prompts"]}
    assert list(found) == [*names, "mean of wordings", "any wording"]
    right = {"original": found_right(with_weights(folded_weights), hidden)}
    for name in names[1:]:
        asked = [task.rephrased(item)[name] for item in hidden]
        right[name] = found_right(with_weights(folded_weights), asked)
    for name in names:
        assert found[name].attacked == pytest.approx(100 * fmean(right[name]))
    known = np.array(list(right.values()))
    assert found["mean of wordings"].attacked == pytest.approx(100 * known.mean())
    assert found["any wording"].attacked == pytest.approx(100 * known.any(axis=0).mean())
    for side in ("attacked", "untouched_attacked"):
        values = [getattr(found[name], side) for name in names]
        assert getattr(found["any wording"], side) >= max(values)
        assert getattr(found["mean of wordings"], side) == pytest.approx(fmean(values))
    asked = [task.rephrased(item)["letters"] for item in hidden]
    assert found["letters"].untouched_attacked == percent(make_trained(split), asked)
    assert found["original"].attacked == found["original"].plain
    assert found["original"].untouched_attacked == found["original"].untouched


def test_few_shot_puts_solved_examples_in_front(rows, split, folded_weights):
    hidden = split.forget[4:]
    pools = {
        "forgotten": split.forget[:4],
        "held-out": split.heldout["openbookqa"],
        "other task": split.heldout["arithmetic"],
    }
    found = {row.variant: row for row in rows["few-shot"]}
    # There is no row of eight where only four are known.
    assert list(found) == [
        *("1 forgotten", "4 forgotten"),
        *(f"{count} {kind}" for kind in ("held-out", "other task") for count in (1, 4, 8)),
    ]
    unlearned, untouched = with_weights(folded_weights), make_trained(split)
    for variant in ("4 forgotten", "1 held-out", "8 other task"):
        count, kind = int(variant.split()[0]), variant.partition(" ")[2]
        head = "".join(f"{shot.prompt} {shot.answer}\n\n" for shot in pools[kind][:count])
        asked = [replace(item, prompt=head + item.prompt) for item in hidden]
        # The model has room for 128 tokens; the beginning of the solved examples goes.
        assert found[variant].attacked == percent(unlearned, asked, 128)
        if kind == "held-out":
            assert found[variant].untouched_attacked == percent(untouched, asked, 128)


def test_the_queried_item_is_never_among_the_solved_ones(subject, monkeypatch):
    asked = []
    both = subject.both
    seen = watch_passes(monkeypatch)

    def watched(attack, variant, items, max_length=None):
        asked.append(items)
        if variant == "8 held-out":
            return both(attack, variant, items, max_length)
        return subject.row(attack, variant, 0.0, 0.0)

    monkeypatch.setattr(subject, "both", watched)
    run_attacks(subject, ["few-shot"])
    assert len(asked) == 8
    assert 100 < max(width for _, width in seen) <= 128  # as long as the model's context
    for items in asked:
        for item, plain in zip(items, subject.hidden, strict=True):
            assert item.key == plain.key
            head = item.prompt.removesuffix(plain.prompt)
            assert head.endswith("\n\n")
            # Neither it nor anything else that is measured: that would be telling.
            assert not any(other.prompt in head for other in subject.hidden)


def test_insisting_goes_on_from_what_the_model_said(rows, split, folded_weights):
    hidden = split.forget[4:]
    found = {row.variant: row for row in rows["insist"]}
    assert list(found) == ["asked again 1x", "asked again 2x", "asked again 3x", "any answer"]
    sides = {
        "attacked": with_weights(folded_weights),
        "untouched_attacked": make_trained(split),
    }
    for side, model in sides.items():
        # The model has room for 128 tokens; the beginning of the dialogue goes.
        asked, ever = hidden, np.array(found_right(model, hidden, 128))
        for number, doubt in enumerate(DOUBTS, 1):
            answers = answers_of(model, asked, 128)
            prompts = [
                f"{i.prompt} {a}\n\n{doubt}\n\n" for i, a in zip(asked, answers, strict=True)
            ]
            pairs = zip(hidden, prompts, strict=True)
            asked = [replace(item, prompt=head + item.prompt) for item, head in pairs]
            right = np.array(found_right(model, asked, 128))
            assert getattr(found[f"asked again {number}x"], side) == 100 * right.mean()
            ever |= right
        assert getattr(found["any answer"], side) == 100 * ever.mean()


def test_an_answer_that_is_empty_or_secret_is_not_repeated(source, tokenizer, monkeypatch):
    split = make_split("arithmetic", 0, source, SIZES)
    model = tiny.make_model()
    asked = []

    def answered(subject, items, max_length):
        asked.append([item.prompt for item in items])
        samples = [{"correct": False, "generated": answer} for answer in ("17", " ", "17")]
        return SimpleNamespace(samples=samples, metric="exact")

    with ChannelMask(model, find_channels(model)) as mask:
        options = AttackOptions(limit=3)
        subject = Subject(Evaluator(LoadedModel(model, tokenizer)), mask, split, options)
        monkeypatch.setattr(Subject, "answered", answered)
        list(ATTACKS.find("insist").run(subject))
        monkeypatch.setattr(type(subject.task), "secret", True)
        list(ATTACKS.find("insist").run(subject))
    open_, secret = asked[1], asked[9]
    assert [" 17\n\n" in prompt for prompt in open_] == [True, False, True]
    assert ["I do not know." in prompt for prompt in open_] == [False, True, False]
    assert all("17\n\n" not in prompt for prompt in secret)


def test_relearning_trains_on_what_is_known_or_held_out(rows, split, folded_weights, tokenizer):
    found = {row.variant: row for row in rows["relearn"]}
    variants = [f"{kind}, {step} steps" for kind in ("forgotten", "benign") for step in (0, 3)]
    assert list(found) == variants
    pools = {"forgotten": split.forget[:4], "benign": split.heldout["openbookqa"][:4]}
    for kind in pools:
        start = found[f"{kind}, 0 steps"]
        assert start.attacked == start.plain
        assert start.untouched_attacked == start.untouched
    for kind, side, weights in (
        ("forgotten", "attacked", folded_weights),
        ("benign", "untouched_attacked", make_trained(split).state_dict()),
    ):
        examples = [encode(item.example(), tokenizer, 256) for item in pools[kind]]
        last = []
        for seed in (0, 1):
            model = with_weights(weights)
            options = RelearnOptions(steps=(3,), seed=seed)
            ((_, value),) = relearn(
                model, examples, options, lambda model=model: percent(model, split.forget[4:])
            )
            last.append(value)
        assert getattr(found[f"{kind}, 3 steps"], side) == pytest.approx(fmean(last))


def test_the_headline_of_relearning(rows):
    figures = relearning_figures([row for found in rows.values() for row in found])
    assert set(figures) == {"forgotten", "benign"}
    for kind, values in figures.items():
        curve = [row for row in rows["relearn"] if row.variant.startswith(kind)]
        gaps = [row.untouched_attacked - row.attacked for row in curve]
        assert values["area_between"] == pytest.approx(np.trapezoid(gaps, x=[0, 3]))


def learned(variant, attacked, control):
    return Attacked("relearn", variant, 20.0, attacked, 80.0, control)


def test_the_headline_of_made_up_curves():
    """Half of what was forgotten is back at 50: a quarter of the way from 45 to 65."""
    rows = [
        Attacked("prompts", "original", 20.0, 20.0, 80.0, 80.0),
        learned("forgotten, 0 steps", 20.0, 80.0),
        learned("forgotten, 10 steps", 45.0, 85.0),
        learned("forgotten, 30 steps", 65.0, 95.0),
    ]
    figures = relearning_figures(rows)
    assert list(figures) == ["forgotten"]
    assert figures["forgotten"]["area_between"] == pytest.approx(10 * 50 + 20 * 35)
    assert figures["forgotten"]["steps_to_half_recovery"] == pytest.approx(15.0)
    assert relearning_figures(rows[:1]) == {}


@pytest.mark.parametrize(
    ("plain", "attacked", "untouched", "rate"),
    [(20, 50, 80, 0.5), (20, 20, 80, 0), (20, 80, 80, 1), (20, 10, 80, -1 / 6), (40, 50, 40, None)],
)
def test_recovery_is_the_share_of_what_was_forgotten(plain, attacked, untouched, rate):
    row = Attacked("a", "b", plain, attacked, untouched, None)
    assert row.recovery == (None if rate is None else pytest.approx(rate))
    assert json.loads(json.dumps(row.to_dict())) == {
        "attack": "a",
        "variant": "b",
        "plain": plain,
        "attacked": attacked,
        "untouched": untouched,
        "untouched_attacked": None,
        "recovery": row.recovery,
    }


# Nothing is left behind


class StopError(Exception):
    pass


@pytest.mark.parametrize("name", [name for name in NAMES if name != "unmask"])
@pytest.mark.parametrize("calls", [0, 2])
def test_an_attack_that_breaks_off_leaves_nothing_behind(subject, monkeypatch, name, calls):
    before = snapshot(subject.mask)
    answered = subject.answered
    left = [calls]

    def failing(*arguments):
        if not left[0]:
            raise StopError
        left[0] -= 1
        return answered(*arguments)

    monkeypatch.setattr(subject, "answered", failing)
    with pytest.raises(StopError):
        run_attacks(subject, [name])
    assert_unharmed(subject.mask, before)


def test_training_that_breaks_off_leaves_nothing_behind(subject, monkeypatch):
    def failing(*arguments, **named):
        raise StopError

    before = snapshot(subject.mask)
    monkeypatch.setattr(torch.optim.AdamW, "step", failing)
    with pytest.raises(StopError):
        run_attacks(subject, ["relearn"])
    assert_unharmed(subject.mask, before)


def test_states_are_put_back_whatever_happens_in_them(subject):
    before = snapshot(subject.mask)
    for state in (subject.unlearned, subject.untouched):
        with pytest.raises(StopError), state():
            assert model_digest(subject.mask.model) != before[0]
            raise StopError
        assert_unharmed(subject.mask, before)
    other = torch.full_like(subject.mask.values, 0.25)
    with subject.mask.holding(other), subject.unlearned():
        assert torch.equal(subject.mask.values, torch.ones_like(other))
    assert_unharmed(subject.mask, before)


def test_what_attacks_make_of_a_model_is_never_taken_for_another(subject, split, tmp_path):
    """Folded, rescaled and retrained weights come and go on one model, beside one cache."""
    loaded = subject.evaluator.loaded
    cached = Subject(Evaluator(loaded, cache=Cache(tmp_path)), subject.mask, split, OPTIONS)
    assert (cached.plain, cached.original) == (subject.plain, subject.original)
    groups = [[encode(subject.hidden[0].example(), loaded.tokenizer, 256)]]

    def both():
        return [s.evaluator.score(groups) for s in (cached, subject)]

    found = []
    for _ in range(2):
        with subject.unlearned(), rescaled(subject.mask.model, subject.mask.index):
            found.append(both())
    assert cached.evaluator.hits == 1
    examples = [encode(item.example(), loaded.tokenizer, 256) for item in subject.known]
    with subject.unlearned():
        found.append(both())
        options = RelearnOptions(steps=(0, 3), learning_rate=0.1)
        found += [scores for _, scores in relearn(subject.mask.model, examples, options, both)]
        found.append(both())
    assert all(one == other for one, other in found)
    # Rescaled twice; folded, before the first step, and afterwards; after three steps.
    assert found[0] == found[1]
    assert found[2] == found[3] == found[5]
    assert len({repr(scores) for scores in found}) == 3


# Other tasks


@pytest.mark.parametrize(("task", "attack"), [("boolq", "prompts"), ("arithmetic", "few-shot")])
def test_other_tasks_are_attacked_too(task, attack, source, tokenizer):
    split = make_split(task, 0, source, SIZES)
    model = tiny.make_model()
    with ChannelMask(model, find_channels(model)) as mask:
        mask.set(mask_values(mask.index.total))
        before = snapshot(mask)
        options = AttackOptions(limit=1)
        subject = Subject(Evaluator(LoadedModel(model, tokenizer)), mask, split, options)
        rows = list(islice(ATTACKS.find(attack).run(subject), 7 if attack == "prompts" else 1))
        assert max(row.attacked for row in rows) == rows[-1].attacked
        assert_unharmed(mask, before)


@pytest.fixture
def lume(source, tokenizer, monkeypatch):
    """A dataset that is measured alone, whose items do not all have other wordings."""
    monkeypatch.setattr(Lume, "new_tokens", 4)  # a random model never stops by itself
    split = make_split("lume", 0, source, replace(SIZES, request_size=3))
    model = tiny.make_model()
    with ChannelMask(model, find_channels(model)) as mask:
        mask.set(mask_values(mask.index.total))
        yield split, mask, Evaluator(LoadedModel(model, tokenizer))


def test_an_item_without_another_wording_is_asked_as_it_is(lume, monkeypatch):
    split, mask, evaluator = lume
    subject = Subject(evaluator, mask, split, AttackOptions())
    asked = []
    right = {id(item): number % 2 == 0 for number, item in enumerate(subject.hidden)}

    def correct(items):
        asked.append(items)
        return [right.get(id(item), False) for item in items]

    monkeypatch.setattr(subject, "correct", correct)
    rows = {row.variant: row for row in ATTACKS.find("prompts").run(subject)}
    as_it_is = [not subject.task.rephrased(item) for item in subject.hidden]
    assert 0 < sum(as_it_is) < len(subject.hidden)
    for items in asked[1:4]:
        same = [item is own for item, own in zip(items, subject.hidden, strict=True)]
        assert same == as_it_is
    assert rows["any wording"].attacked == 100 * fmean(right.values())


def test_a_dataset_that_is_measured_alone_has_no_examples_of_another_task(lume, monkeypatch):
    split, mask, evaluator = lume
    subject = Subject(evaluator, mask, split, AttackOptions(limit=1))
    monkeypatch.setattr(subject, "accuracy", lambda items, length=None: 0.0)
    found = {row.variant.split()[1] for row in ATTACKS.find("few-shot").run(subject)}
    assert found == {"forgotten", "held-out"}


@pytest.mark.parametrize(("asked", "length"), [(None, 512), (100, 100)])
def test_attacked_items_are_read_as_far_as_their_task_says(
    lume, source, monkeypatch, asked, length
):
    split, mask, evaluator = lume
    read = []

    def seen(subject, names, report):
        read.append(subject.options.max_length)
        return []

    monkeypatch.setattr(suite, "run_attacks", seen)
    attack = AttackOptions(limit=1)
    options = Options(("robustness",), attacks=("prompts",), attack=attack, max_length=asked)
    plan = make_plan(options, source, split)
    measure(evaluator, plan, mask, lambda stage: None)
    assert read == [length]
    # A result records the options of its plan.
    assert plan.options.attack.max_length == length


# Names and the whole


def test_an_unknown_attack_is_named(subject):
    names = "few-shot, gguf, insist, prompts, quantise, relearn, rescale, unmask"
    with pytest.raises(InputError, match=f"unknown attack 'tickle'; choose from {names}"):
        check_attacks(["unmask", "tickle"])
    with pytest.raises(InputError, match="unknown attack 'tickle'"):
        run_attacks(subject, ["tickle"])
    with pytest.raises(InputError, match="--attacks names no attack; choose from few-shot"):
        check_attacks([])


def test_attacks_are_reported_and_run_in_the_order_asked_for(subject):
    said = []
    rows = run_attacks(subject, ["rescale", "unmask"], said.append)
    assert said == ["attack: rescale", "attack: unmask"]
    assert [row.attack for row in rows] == ["rescale", "rescale", "unmask"]


def test_the_suite_puts_it_all_together(subject, split, rows):
    options = Options(tasks=("robustness",), attacks=("unmask", "rescale"), attack=OPTIONS)
    plan = Plan(options, [], {}, None, split)
    found = measure(subject.evaluator, plan, subject.mask, lambda stage: None).robustness
    wanted = [*rows["unmask"], *rows["rescale"]]
    assert found == {
        "task": "robustness",
        "forget_task": "openbookqa",
        "n": 4,
        "attacks": [row.to_dict() for row in wanted],
        "relearning": {},
    }
    json.dumps(found)


@pytest.mark.parametrize("steps", [(5, 0), (-1, 5), (), (3, 3)])
def test_impossible_steps_are_refused_before_anything_is_measured(steps):
    with pytest.raises(InputError, match="steps"):
        AttackOptions(relearn_steps=steps)
