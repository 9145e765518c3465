"""Task accuracy against plain float64 passes, one candidate at a time."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score

from tests import tiny
from tests.datasets import made_up_folder
from tests.evaluation.reference import (
    answer_hits,
    answer_log_probs,
    greedy,
    matches,
    trained_on,
)
from tfrnet.core.errors import InputError, TfrnetError
from tfrnet.data.items import Item
from tfrnet.data.sources import Source
from tfrnet.data.tasks import find_task
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.plan import Options, Part, Plan
from tfrnet.evaluation.suite import measure
from tfrnet.evaluation.tasks import evaluate_task
from tfrnet.models.load import LoadedModel
from tfrnet.models.token_scores import TokenScores

COUNT = 12


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return Source("folder", made_up_folder(tmp_path_factory.mktemp("data")))


@pytest.fixture(scope="module")
def items(source):
    found = {}
    for name in ("boolq", "openbookqa", "arithmetic"):
        task = find_task(name)
        found[name] = task.load(task.evaluation, source)[:COUNT]
    return found


@pytest.fixture(scope="module")
def evaluator(items, tokenizer):
    """A model that knows half of the sums, and goes on after some of them."""
    known = items["arithmetic"][: COUNT // 2]
    texts = [f"{item.prompt} {item.answer}" for item in known]
    endings = ["\nQuestion", ".\n", " or so\n", ".5\n", "0\n", "<eos>"]
    joined = [text + end for text, end in zip(texts, endings, strict=True)]
    return Evaluator(LoadedModel(trained_on(joined, 45).double(), tokenizer), batch_size=5)


def log_likelihoods(evaluator, item):
    """Sum over each candidate's tokens: those of the whole text after the prompt's own number."""
    model, tokenizer = evaluator.loaded
    start = len(tokenizer(item.prompt)["input_ids"])
    return [
        sum(answer_log_probs(model, tokenizer(f"{item.prompt} {choice}")["input_ids"], start))
        for choice in item.choices
    ]


def percent_and_error(right):
    values = 100 * np.array(right, dtype=float)
    return values.mean(), values.std(ddof=1) / np.sqrt(len(values))


# Ranking


@pytest.mark.parametrize("name", ["boolq", "openbookqa"])
def test_ranking_is_that_of_plain_passes(name, evaluator, items, tokenizer):
    result = evaluate_task(evaluator, find_task(name), items[name], "some part")
    right, right_norm = [], []
    for item, sample in zip(items[name], result.samples, strict=True):
        totals = log_likelihoods(evaluator, item)
        gold = item.choices.index(item.answer)
        chosen = int(np.argmax(totals))
        lengths = [len(choice) for choice in item.choices]
        chosen_norm = int(np.argmax(np.array(totals) / lengths))
        right.append(chosen == gold)
        right_norm.append(chosen_norm == gold)
        tokens = len(tokenizer(f"{item.prompt} {item.answer}")["input_ids"]) - len(
            tokenizer(item.prompt)["input_ids"]
        )
        wrong = max(t for i, t in enumerate(totals) if i != gold)
        assert sample["key"] == item.key
        assert sample["gold"] == gold
        assert sample["log_likelihoods"] == pytest.approx(totals, abs=1e-9)
        assert (sample["chosen"], sample["chosen_norm"]) == (chosen, chosen_norm)
        assert (sample["acc"], sample["acc_norm"]) == (right[-1], right_norm[-1])
        assert sample["margin"] == pytest.approx(totals[gold] - wrong, abs=1e-9)
        assert sample["loss"] == pytest.approx(-totals[gold] / tokens, abs=1e-9)
        assert sample["correct"] == (right if name == "boolq" else right_norm)[-1]
    for metric, values in (("acc", right), ("acc_norm", right_norm)):
        value, error = percent_and_error(values)
        assert result.metrics[metric].value == pytest.approx(value)
        assert result.metrics[metric].stderr == pytest.approx(error)
    assert result.metric == ("acc" if name == "boolq" else "acc_norm")
    assert result.accuracy == result.metrics[result.metric].value
    assert 0 < result.accuracy < 100
    assert (result.task, result.part) == (name, "some part")


def test_length_matters_to_acc_norm_alone(evaluator, items):
    """The made-up choices do differ in length, so that the two metrics part."""
    samples = evaluate_task(evaluator, find_task("openbookqa"), items["openbookqa"], "x").samples
    assert any(sample["chosen"] != sample["chosen_norm"] for sample in samples)


@pytest.mark.parametrize("name", ["boolq", "openbookqa", "arithmetic"])
def test_the_batch_size_changes_nothing(name, evaluator, items):
    task, some = find_task(name), items[name][:6]
    one = evaluate_task(evaluator, task, some, "x")
    rounded = ("log_likelihoods", "loss", "margin")
    for batch_size in (1, 64):
        other = evaluate_task(Evaluator(evaluator.loaded, batch_size), task, some, "x")
        assert other.to_dict() == one.to_dict()
        for a, b in zip(one.samples, other.samples, strict=True):
            assert b["log_likelihoods"] == pytest.approx(a["log_likelihoods"], abs=1e-9)
            assert {k: v for k, v in a.items() if k not in rounded} == {
                k: v for k, v in b.items() if k not in rounded
            }


def test_floors_are_counted_on_the_items_at_hand(evaluator, items):
    some = items["boolq"][:5]
    floors = evaluate_task(evaluator, find_task("boolq"), some, "x").floors
    yes = sum(item.answer == "yes" for item in some)
    assert yes == 2
    assert floors == {"always yes": 100 * yes / 5, "random": 50.0}
    some = items["openbookqa"]
    floors = evaluate_task(evaluator, find_task("openbookqa"), some, "x").floors
    longest = [int(np.argmax([len(choice) for choice in item.choices])) for item in some]
    hits = [item.choices[i] == item.answer for item, i in zip(some, longest, strict=True)]
    assert 0 < sum(hits) < COUNT
    assert floors == {"longest choice": pytest.approx(100 * np.mean(hits)), "random": 25.0}


def test_the_histogram_counts_what_the_headline_chose(evaluator, items):
    result = evaluate_task(evaluator, find_task("boolq"), items["boolq"], "x")
    names = [("no", "yes")[sample["chosen"]] for sample in result.samples]
    assert result.details["chosen"] == dict(Counter(names))
    assert sum(result.details["chosen"].values()) == COUNT
    result = evaluate_task(evaluator, find_task("openbookqa"), items["openbookqa"], "x")
    letters = Counter("ABCD"[sample["chosen_norm"]] for sample in result.samples)
    assert result.details["chosen"] == dict(letters)
    assert "balanced_accuracy" not in result.details


def yes_no(gold, number):
    return Item(f"k{number}", f"Item {number} is", ("no", "yes")[gold], f"g{number}", ("no", "yes"))


class Decided:
    """In the place of a model: the log-likelihood of each candidate of each item."""

    def __init__(self, evaluator, totals):
        self.loaded, self.totals = evaluator.loaded, totals

    def score(self, groups):
        return [
            [TokenScores((total,), (True,)) for _, total in zip(group, totals, strict=True)]
            for group, totals in zip(groups, self.totals, strict=True)
        ]


@pytest.mark.parametrize(
    ("choices", "totals", "plain", "per_character"),
    [
        (("ice", "a frozen lake", "sun", "the big warm sea"), (-4.0, -9.1, -3.9, -12.0), 2, 1),
        # The space before a candidate is no character of it; characters are not bytes.
        (("a", "bb cc"), (-1.0, -4.6), 0, 1),
        (("café", "naive"), (-4.0, -5.1), 0, 0),
        (("aa", "bb"), (-2.0, -2.0), 0, 0),
    ],
)
def test_acc_norm_divides_by_the_characters(choices, totals, plain, per_character, evaluator):
    item = Item("k", "Item 1 is", choices[1], "g", choices)
    decided = Decided(evaluator, [totals])
    (sample,) = evaluate_task(decided, find_task("openbookqa"), [item], "x").samples
    assert (sample["chosen"], sample["chosen_norm"]) == (plain, per_character)
    assert sample["correct"] == sample["acc_norm"] == (per_character == 1)


@pytest.mark.parametrize(
    ("gold", "chosen"),
    [
        ([0, 0, 0, 1, 1, 0], [0, 0, 1, 1, 0, 1]),
        ([0, 0, 0, 0, 0, 1], [0] * 6),
        ([1, 1, 1], [1, 0, 1]),
        ([1, 1], [0, 0]),
        ([0, 1, 1, 1], [1, 0, 0, 0]),
    ],
)
def test_balanced_accuracy_is_scikit_learns(gold, chosen, evaluator):
    some = [yes_no(right, number) for number, right in enumerate(gold)]
    decided = Decided(evaluator, [(-5.0, -1.0) if yes else (-1.0, -5.0) for yes in chosen])
    result = evaluate_task(decided, find_task("boolq"), some, "x")
    absent = set(chosen) - set(gold)
    with pytest.warns(UserWarning, match="not in y_true") if absent else nullcontext():
        expected = 100 * balanced_accuracy_score(gold, chosen)
    assert result.details["balanced_accuracy"] == pytest.approx(expected)
    value, error = percent_and_error([g == c for g, c in zip(gold, chosen, strict=True)])
    assert result.metrics["acc"].value == pytest.approx(value)
    assert result.metrics["acc"].stderr == pytest.approx(error)


def test_a_single_item_has_no_standard_error(evaluator, items):
    result = evaluate_task(evaluator, find_task("boolq"), items["boolq"][:1], "x")
    assert result.metrics["acc"].stderr is None
    assert result.metrics["acc"].value in (0.0, 100.0)


def test_a_single_item_of_openbookqa_has_letters_and_no_balance(evaluator, items):
    result = evaluate_task(evaluator, find_task("openbookqa"), items["openbookqa"][:1], "x")
    assert set(result.details["chosen"]) <= set("ABCD")
    assert "balanced_accuracy" not in result.details


def test_a_result_becomes_json_without_its_samples(evaluator, items):
    result = evaluate_task(evaluator, find_task("boolq"), items["boolq"], "dev")
    values = json.loads(json.dumps(result.to_dict()))
    assert values == result.to_dict()
    assert (values["task"], values["part"], values["n"]) == ("boolq", "dev", COUNT)
    assert values["metrics"]["acc"] == {
        "value": result.metrics["acc"].value,
        "stderr": result.metrics["acc"].stderr,
    }
    assert "samples" not in values
    json.dumps(list(result.samples))


@pytest.mark.parametrize("name", ["boolq", "openbookqa", "arithmetic"])
def test_a_model_that_gives_no_numbers_gets_no_accuracy(name, items, tokenizer):
    """As one in float16 that overflows."""
    model = tiny.make_model()
    model.lm_head.weight.data.fill_(float("nan"))
    with pytest.raises(TfrnetError, match="number"):
        evaluate_task(Evaluator(LoadedModel(model, tokenizer)), find_task(name), items[name], "x")


def test_mutual_information_compares_with_the_empty_prompt(evaluator, items, tokenizer):
    some = items["openbookqa"][:5]
    model = evaluator.loaded.model
    result = evaluate_task(evaluator, find_task("openbookqa"), some, "x", mutual_info=True)
    plain = evaluate_task(evaluator, find_task("openbookqa"), some, "x")
    assert "acc_mutual_info" not in plain.metrics
    for item, sample in zip(some, result.samples, strict=True):
        gains = []
        for choice, total in zip(item.choices, sample["log_likelihoods"], strict=True):
            # There is no BOS, so the end of a text stands before it.
            ids = [tokenizer.eos_token_id, *tokenizer(f" {choice}")["input_ids"]]
            with torch.no_grad():
                log_p = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)
            gains.append(total - sum(log_p[i - 1, ids[i]].item() for i in range(1, len(ids))))
        right = item.choices.index(item.answer)
        assert sample["acc_mutual_info"] == (int(np.argmax(gains)) == right)


# Truncation


def test_a_passage_loses_its_beginning_and_the_rest_stays(evaluator, items, tokenizer):
    model, task, some = evaluator.loaded.model, find_task("boolq"), items["boolq"][:6]
    whole = [tokenizer(f"{item.prompt} yes")["input_ids"] for item in some]
    room = min(map(len, whole)) + 1
    result = evaluate_task(evaluator, task, some, "x", max_length=room)
    for item, sample in zip(some, result.samples, strict=True):
        start = len(tokenizer(item.prompt)["input_ids"])
        choices = [tokenizer(f"{item.prompt} {choice}")["input_ids"] for choice in item.choices]
        # The longest choice decides for all, so that they follow the same prompt.
        surplus = max(0, max(map(len, choices)) - room)
        totals = [sum(answer_log_probs(model, ids[surplus:], start - surplus)) for ids in choices]
        assert sample["log_likelihoods"] == pytest.approx(totals, abs=1e-9)
    cut = sum(len(ids) > room for ids in whole)
    assert 0 < cut < len(some)
    assert result.details["truncated"] == cut
    assert evaluate_task(evaluator, task, some, "x").details["truncated"] == 0


def test_a_task_says_how_long_its_prompts_may_be(evaluator, items, tokenizer, monkeypatch):
    task, some = find_task("boolq"), items["boolq"][:6]
    room = min(len(tokenizer(f"{item.prompt} yes")["input_ids"]) for item in some) + 1
    monkeypatch.setattr(type(task), "max_length", room)
    assert evaluate_task(evaluator, task, some, "x").details["truncated"] > 0
    assert evaluate_task(evaluator, task, some, "x", 256).details["truncated"] == 0


def test_the_harnesss_truncation_keeps_the_right_end(evaluator, items, tokenizer):
    """It feeds the last `max_length` tokens before the last one (evaluation.md 1.4)."""
    some, room = items["boolq"][:6], 40
    result = evaluate_task(
        evaluator, find_task("boolq"), some, "x", max_length=room, truncation="lm_eval"
    )
    for item, sample in zip(some, result.samples, strict=True):
        totals = []
        for choice in item.choices:
            ids = tokenizer(f"{item.prompt} {choice}")["input_ids"]
            length = len(ids) - len(tokenizer(item.prompt)["input_ids"])
            kept = ids[-(room + 1) :]
            totals.append(sum(answer_log_probs(evaluator.loaded.model, kept, len(kept) - length)))
        assert sample["log_likelihoods"] == pytest.approx(totals, abs=1e-9)
    assert result.details["truncated"] == len(some)


def test_the_suite_asks_with_the_options_of_the_plan(evaluator, items):
    task, some = find_task("boolq"), items["boolq"][:2]
    options = Options(tasks=("boolq",), max_length=40, truncation="lm_eval")
    plan = Plan(options, [Part(task, "some part", some)], {}, None, None)
    (found,) = measure(evaluator, plan, None, lambda stage: None).tasks
    expected = evaluate_task(evaluator, task, some, "some part", 40, "lm_eval")
    assert found.to_dict() == expected.to_dict()
    assert found.details["truncated"] == 2
    assert [s["log_likelihoods"] for s in found.samples] == [
        s["log_likelihoods"] for s in expected.samples
    ]


def test_a_question_that_does_not_fit_is_refused_by_name(evaluator, items):
    with pytest.raises(
        InputError,
        match=r"boolq/validation/0: it is longer than max_length .* even without its passage",
    ):
        evaluate_task(evaluator, find_task("boolq"), items["boolq"], "x", max_length=20)


# Arithmetic


def test_arithmetic_is_generated_and_matched_by_the_rule(evaluator, items, tokenizer):
    some, model = items["arithmetic"], evaluator.loaded.model
    result = evaluate_task(evaluator, find_task("arithmetic"), some, "x")
    exact, strict, forced = [], [], []
    for item, sample in zip(some, result.samples, strict=True):
        prompt = tokenizer(item.prompt)["input_ids"]
        said = tokenizer.decode(greedy(model, prompt, 10)).split("\n")[0]
        whole = tokenizer(f"{item.prompt} {item.answer}")["input_ids"]
        log_probs = answer_log_probs(model, whole, len(prompt))
        right = matches(said, item.answer)
        exact.append(right[0])
        strict.append(right[1])
        forced.append(all(answer_hits(model, whole, len(prompt))))
        assert sample["generated"] == said
        assert (sample["exact"], sample["strict"]) == right
        assert sample["greedy"] == forced[-1]
        assert sample["correct"] == right[0]
        assert sample["gold"] == item.answer
        assert sample["log_likelihoods"] == pytest.approx([sum(log_probs)], abs=1e-9)
        assert sample["loss"] == pytest.approx(-np.mean(log_probs), abs=1e-9)
    # The endings make the three rules differ: a full stop, more words, decimals, more digits.
    assert [sum(values) for values in (forced, exact, strict)] == [6, 4, 2]
    for metric, values in (("exact", exact), ("strict", strict), ("greedy", forced)):
        value, error = percent_and_error(values)
        assert result.metrics[metric].value == pytest.approx(value)
        assert result.metrics[metric].stderr == pytest.approx(error)
    assert result.metric == "exact"
    assert result.floors == {"random": 0.0}
    assert result.details == {"truncated": 0}


def test_a_long_prompt_of_a_sum_keeps_its_end(evaluator, items, tokenizer):
    item = items["arithmetic"][0]
    long = replace(item, prompt="Some words. " * 30 + item.prompt)
    result = evaluate_task(evaluator, find_task("arithmetic"), [long], "x", max_length=64)
    prompt = tokenizer(long.prompt)["input_ids"]
    said = greedy(evaluator.loaded.model, prompt[-54:], 10)
    assert result.samples[0]["generated"] == tokenizer.decode(said).split("\n")[0]
    assert result.details["truncated"] == 1


def test_a_prompt_that_is_cut_to_be_continued_counts_as_truncated(evaluator, items, tokenizer):
    """Prompt and answer fit, prompt and ten new tokens do not: the headline saw a cut prompt."""
    item = items["arithmetic"][0]
    length = len(tokenizer(f"{item.prompt} {item.answer}")["input_ids"])
    result = evaluate_task(evaluator, find_task("arithmetic"), [item], "x", max_length=length)
    assert result.details["truncated"] == 1


def test_a_metric_that_does_not_fit_the_items_is_refused(evaluator, items, monkeypatch):
    task = find_task("boolq")
    monkeypatch.setattr(type(task), "metric", "exact")
    with pytest.raises(InputError, match="its items have choices; use acc or acc_norm"):
        evaluate_task(evaluator, task, items["boolq"], "all")
