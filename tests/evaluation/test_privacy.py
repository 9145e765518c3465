"""Membership inference on a model, against the formulas of evaluation.md 3 written out again."""

from __future__ import annotations

import copy
import json
import math
import zlib
from itertools import product

import numpy as np
import pytest
import torch

from tests import tiny
from tests.evaluation.reference import answer_log_probs, trained_on, vocabulary_log_probs
from tfrnet.core.errors import InputError
from tfrnet.data.tofu import TofuRow
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.plan import Options, Plan
from tfrnet.evaluation.privacy import ATTACKS, compare_with_oracle, evaluate_privacy
from tfrnet.evaluation.suite import Measurements, compare, measure
from tfrnet.evaluation.tofu import TofuOptions
from tfrnet.models.load import LoadedModel

EOS = 0
WORDS = ("red", "Dark", "green blue", "Navy", "white")
CHAT = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}<answer>"


def rows(first, count):
    return [
        TofuRow(f"Where is {n}?", f"{WORDS[n % 5]} box {n} {'of the old ' * (n % 3)}box")
        for n in range(first, first + count)
    ]


MEMBERS, OTHERS = rows(0, 7), rows(50, 7)


def prompt(row):
    return f"Question: {row.question}\nAnswer: "


@pytest.fixture(scope="module")
def evaluator(tokenizer):
    """Has seen the members, not all of them well."""
    texts = [f"{prompt(row)}{row.answer}<eos>" for row in MEMBERS]
    return Evaluator(LoadedModel(trained_on(texts, 12).double(), tokenizer), batch_size=4)


@pytest.fixture(scope="module")
def oracle(tokenizer):
    return Evaluator(LoadedModel(tiny.make_model().double(), tokenizer), batch_size=4)


@pytest.fixture(scope="module")
def result(evaluator):
    return evaluate_privacy(evaluator, MEMBERS, OTHERS, TofuOptions())


@pytest.fixture(scope="module")
def reference(oracle):
    return evaluate_privacy(oracle, MEMBERS, OTHERS, TofuOptions())


# The sheet's formulas


def lowest(values, k):
    if not values:
        return 0.0
    return -float(np.mean(sorted(values)[: max(1, math.floor(k * len(values)))]))


def attack_scores(evaluator, row, asked, k, boundary="open-unlearning"):
    model, tokenizer = evaluator.loaded
    ids = [*tokenizer(asked + row.answer)["input_ids"], EOS]
    start = len(tokenizer(asked if boundary == "open-unlearning" else asked.rstrip())["input_ids"])
    with_end = answer_log_probs(model, ids, start)
    loss = -float(np.mean(with_end))
    text = tokenizer.decode(ids[start:-1])
    standardised = []
    log_p = vocabulary_log_probs(model, ids).numpy()
    for position, value in zip(range(start, len(ids) - 1), with_end[:-1], strict=True):
        words = log_p[position - 1]
        mean = (np.exp(words) * words).sum()
        variance = (np.exp(words) * words**2).sum() - mean**2
        standardised.append((value - mean) / math.sqrt(max(variance, 1e-6)))
    return {
        "loss": loss,
        "zlib": loss / len(zlib.compress(text.encode("utf-8"))),
        "min_k": lowest(with_end[:-1], k),
        "min_k_plus_plus": lowest(standardised, k),
    }


def assert_scores(evaluator, found, asked=prompt, k=0.4, members=MEMBERS, others=OTHERS, **how):
    for side, side_rows in enumerate((members, others)):
        expected = [attack_scores(evaluator, row, asked(row), k, **how) for row in side_rows]
        for name in ATTACKS:
            wanted = [row[name] for row in expected]
            assert list(found.scores[name][side]) == pytest.approx(wanted, abs=1e-9)


def auc_by_pairs(members, others):
    pairs = list(product(members, others))
    return sum((b > a) + 0.5 * (b == a) for a, b in pairs) / len(pairs)


@pytest.mark.parametrize("k", [0.2, 0.4, 1.0])
def test_scores_are_those_of_plain_passes(k, evaluator):
    found = evaluate_privacy(evaluator, MEMBERS, OTHERS, TofuOptions(), k)
    assert_scores(evaluator, found, k=k)
    assert set(found.scores) == {"loss", "zlib", "min_k", "min_k_plus_plus"}


def test_the_share_is_two_fifths_where_nothing_else_is_said(evaluator, result):
    assert_scores(evaluator, result, k=0.4)


def test_the_answer_boundary(evaluator, result):
    found = evaluate_privacy(evaluator, MEMBERS, OTHERS, TofuOptions(boundary="answer"))
    assert_scores(evaluator, found, boundary="answer")
    assert found.scores["loss"] != result.scores["loss"]


def test_a_chat_template(evaluator, tokenizer):
    chatty = copy.deepcopy(tokenizer)
    chatty.chat_template = CHAT
    asked = Evaluator(LoadedModel(evaluator.loaded.model, chatty), batch_size=4)
    few = (MEMBERS[:2], OTHERS[:2])
    found = evaluate_privacy(asked, *few, TofuOptions(template="chat"))

    def wording(row):
        return f"<system>You are a helpful assistant.<user>{row.question}<answer>"

    assert_scores(asked, found, wording, members=few[0], others=few[1])


def test_an_answer_of_nothing_but_its_end_has_no_least_likely_tokens(evaluator, tokenizer):
    """The prompt's own number of tokens leaves out ` red`, and only the end is labelled."""
    lone = [TofuRow("Where?", "red")]
    found = evaluate_privacy(evaluator, lone, OTHERS, TofuOptions())
    assert_scores(evaluator, found, members=lone)
    assert found.scores["min_k"][0] == [0.0]
    assert found.scores["min_k_plus_plus"][0] == [0.0]
    assert found.scores["zlib"][0][0] == pytest.approx(
        found.scores["loss"][0][0] / len(zlib.compress(b""))
    )


def test_aucs_are_shares_of_pairs_and_members_score_low(result):
    for name in ATTACKS:
        assert result.aucs[name] == pytest.approx(auc_by_pairs(*result.scores[name]))
    assert result.aucs["loss"] > 0.9
    assert result.gap == pytest.approx(np.mean([abs(auc - 0.5) for auc in result.aucs.values()]))


def test_a_model_that_saw_nothing_tells_nothing_apart(oracle):
    found = evaluate_privacy(oracle, MEMBERS, MEMBERS, TofuOptions())
    assert found.aucs == dict.fromkeys(ATTACKS, 0.5)
    assert found.gap == 0


def test_blind_baselines_need_no_model(result):
    sides = [[row.answer for row in side] for side in (MEMBERS, OTHERS)]
    bytes_ = [[len(zlib.compress(text.encode())) for text in side] for side in sides]
    blind = result.to_dict()["blind_baselines"]
    assert blind["compressed_length"] == pytest.approx(auc_by_pairs(*bytes_))
    assert blind["inverse_compressed_length"] == pytest.approx(1 - auc_by_pairs(*bytes_))
    assert blind["answer_length"] == pytest.approx(
        auc_by_pairs(*([len(text) for text in side] for side in sides))
    )


def hanley_mcneil(auc, members, others):
    """Non-members are the positives: their scores are the higher ones."""
    first, second = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    spread = auc * (1 - auc) + (others - 1) * (first - auc**2) + (members - 1) * (second - auc**2)
    return math.sqrt(spread / (members * others))


def test_json_has_sizes_and_standard_errors(reference):
    values = json.loads(json.dumps(reference.to_dict()))
    assert values["n"] == {"members": 7, "non_members": 7}
    assert values["mia_gap"] == reference.gap
    assert any(0 < auc < 1 for auc in reference.aucs.values())
    for name, auc in reference.aucs.items():
        expected = hanley_mcneil(auc, 7, 7)
        assert values["auc"][name] == {"value": auc, "stderr": pytest.approx(expected)}


def test_standard_errors_of_sets_of_different_sizes(oracle):
    found = evaluate_privacy(oracle, MEMBERS[:2], OTHERS, TofuOptions())
    auc = found.aucs["min_k"]
    assert 0 < auc < 1
    assert hanley_mcneil(auc, 2, 7) != pytest.approx(hanley_mcneil(auc, 7, 2))
    stderr = found.to_dict()["auc"]["min_k"]["stderr"]
    assert stderr == pytest.approx(hanley_mcneil(auc, 2, 7))


# The retain-only model


def test_the_comparison_with_the_retain_only_model(result, reference):
    found = compare_with_oracle(result, reference)
    own, other = result.aucs["min_k"], reference.aucs["min_k"]
    signed = 100 * ((1 - own) - (1 - other)) / (1 - other)
    assert signed < 0  # nothing was unlearned
    assert found["privleak_signed"] == pytest.approx(signed)
    assert found["privleak"] == pytest.approx(abs(signed))
    assert found["privleak_ratio"] == pytest.approx(100 * abs(own - other) / other)
    assert found["privleak_difference"] == pytest.approx(100 * abs(own - other))
    assert found["oracle_auc"] == dict(reference.aucs)
    assert found["oracle_mia_gap"] == pytest.approx(reference.gap)
    each = [
        min(1, max(0, 1 - abs(result.aucs[n] - reference.aucs[n]) / reference.aucs[n]))
        for n in ATTACKS
    ]
    mean = 0 if 0 in each else 4 / sum(1 / score for score in each)
    assert found["privacy_score"] == pytest.approx(mean)
    low, high = found["auc_difference_interval"]
    assert -1 <= low <= own - other <= high <= 1
    assert low < high
    json.dumps(found)


def test_the_reference_attack_takes_the_oracles_loss_away(result, reference):
    sides = [
        [own - other for own, other in zip(mine, its, strict=True)]
        for mine, its in zip(result.scores["loss"], reference.scores["loss"], strict=True)
    ]
    wins = [(b > a) + 0.5 * (a == b) for a, b in product(*sides)]
    found = compare_with_oracle(result, reference)["reference_auc"]
    assert found == pytest.approx(np.mean(wins))


def test_gradient_norms_are_those_of_one_backward_pass_an_answer(evaluator, result):
    model, tokenizer = evaluator.loaded
    frozen = [p for p in model.parameters() if p.requires_grad][:3]
    for parameter in frozen:
        parameter.requires_grad_(False)
    found = evaluate_privacy(evaluator, MEMBERS[:2], OTHERS[:2], TofuOptions(), gradients=True)
    assert not any(parameter.requires_grad for parameter in frozen)
    for parameter in frozen:
        parameter.requires_grad_(True)
    for side, rows_ in zip(found.more["gradient_norm"], (MEMBERS[:2], OTHERS[:2]), strict=True):
        for score, row in zip(side, rows_, strict=True):
            ids = [*tokenizer(prompt(row) + row.answer)["input_ids"], EOS]
            start = len(tokenizer(prompt(row))["input_ids"])
            labels = torch.tensor([[-100] * start + ids[start:]])
            model.zero_grad()
            model(input_ids=torch.tensor([ids]), labels=labels).loss.backward()
            norms = [p.grad.norm().item() for p in model.parameters() if p.grad is not None]
            assert score == pytest.approx(np.mean(norms), rel=1e-6)
    model.zero_grad()
    values = found.to_dict()
    assert set(values["auc"]) == {*ATTACKS, "gradient_norm"}
    # The gap is that of the four attacks that need no gradients.
    gap = np.mean([abs(found.aucs[name] - 0.5) for name in ATTACKS])
    assert values["mia_gap"] == pytest.approx(gap)


def test_the_intervals_are_those_of_the_seed(result, reference):
    one, again = (compare_with_oracle(result, reference, seed=3) for _ in range(2))
    assert one == again
    other = compare_with_oracle(result, reference, seed=4)
    assert other["auc_difference_interval"] != one["auc_difference_interval"]


def test_a_model_that_equals_the_oracle_leaks_nothing(reference):
    found = compare_with_oracle(reference, reference)
    for name in ("privleak", "privleak_signed", "privleak_ratio", "privleak_difference"):
        assert found[name] == 0
    assert found["privacy_score"] == 1
    assert tuple(found["auc_difference_interval"]) == (0, 0)


def test_the_suite_compares_where_it_can_and_names_what_is_missing(result, reference):
    compared = compare(Measurements(privacy=result), Measurements(privacy=reference))
    assert compared.missing == []
    assert compared.results == [result.to_dict() | compare_with_oracle(result, reference)]
    for absent in (None, Measurements()):
        compared = compare(Measurements(privacy=result), absent)
        assert not any(name.startswith("privleak") for name in compared.results[0])
        ((figure, why),) = [(entry["figure"], entry["why"]) for entry in compared.missing]
        assert figure == "privleak"
        assert "--oracle MODEL" in why


def test_the_suite_asks_with_the_options_of_the_plan(evaluator):
    options = Options(tasks=("privacy",), min_k=1.0, tofu=TofuOptions(boundary="answer"))
    plan = Plan(options, [], {}, (MEMBERS[:2], OTHERS[:2]), None)
    found = measure(evaluator, plan, None, lambda stage: None).privacy
    few = {"members": MEMBERS[:2], "others": OTHERS[:2]}
    assert_scores(evaluator, found, k=1.0, boundary="answer", **few)


def test_every_score_is_a_sample(result):
    samples = list(Measurements(privacy=result).samples())
    assert len(samples) == 4 * 14
    assert samples[0] == {
        "task": "privacy",
        "part": "member",
        "row": 0,
        "attack": "loss",
        "score": result.scores["loss"][0][0],
    }


def test_the_batch_size_changes_nothing(evaluator, result):
    other = evaluate_privacy(Evaluator(evaluator.loaded, 1), MEMBERS, OTHERS, TofuOptions())
    for name, side in product(ATTACKS, (0, 1)):
        assert other.scores[name][side] == pytest.approx(result.scores[name][side], abs=1e-9)


@pytest.mark.parametrize("k", [0, -0.1, 1.5])
def test_a_share_that_is_none_is_refused(k, oracle):
    with pytest.raises(InputError, match="share k"):
        evaluate_privacy(oracle, MEMBERS[:1], OTHERS[:1], TofuOptions(), k)
