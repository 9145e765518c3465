"""TOFU on a model, against the formulas of evaluation.md 2.2 to 2.5 written out once more."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer
from scipy.stats import ks_2samp

from tests import tiny
from tests.datasets import made_up_folder
from tests.evaluation.reference import answer_hits, answer_log_probs, greedy, trained_on
from tfrnet.core.errors import InputError
from tfrnet.data.sources import Source
from tfrnet.data.tofu import TofuRow, load_tofu
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.suite import Measurements, compare
from tfrnet.evaluation.tofu import SETS, TofuOptions, evaluate_tofu
from tfrnet.models.load import LoadedModel

EOS = 0
SHORT = 10
OPTIONS = TofuOptions(max_new_tokens=SHORT)
CHAT = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def row(number: int, paraphrase: bool) -> TofuRow:
    """Every other answer begins with a word that the tokenizer joins with the space before it."""
    colour = ("Dark", "red", "Navy", "green blue")[number % 4]
    return TofuRow(
        question=f"Where is {number}?",
        answer=f"{colour} box {number}",
        paraphrased_question=f"Is {number} where?" if paraphrase else None,
        paraphrased_answer=f"{colour} box {number} too" if paraphrase else None,
        wrong_answers=("old box", f"The box {number}", "yellow"),
    )


ROWS = {
    name: [row(number, name in ("forget", "retain")) for number in range(first, first + count)]
    for name, first, count in zip(SETS, (0, 20, 40, 60), (4, 3, 3, 2), strict=True)
}


FEW = {name: rows[:1] for name, rows in ROWS.items()}
LAST = {name: rows[-2:] for name, rows in ROWS.items()}


@pytest.fixture(scope="module")
def evaluator(tokenizer):
    """Knows some of the rows, and when to stop there."""
    known = [row for name in SETS for row in ROWS[name][:2]]
    texts = [f"{plain_prompt(row)}{row.answer}<eos>" for row in known]
    return Evaluator(LoadedModel(trained_on(texts, 45).double(), tokenizer), batch_size=3)


@pytest.fixture(scope="module")
def result(evaluator):
    return evaluate_tofu(evaluator, ROWS, OPTIONS)


# The sheet's formulas


def labelled(tokenizer, prompt, answer, boundary="open-unlearning"):
    """Return the token ids and the number of the first that is labelled; EOS is the last."""
    ids = [*tokenizer(prompt + answer)["input_ids"], EOS]
    # OpenUnlearning: as many tokens as the prompt has on its own. Else the space is the answer's.
    alone = prompt if boundary == "open-unlearning" else prompt.rstrip()
    return ids, len(tokenizer(alone)["input_ids"])


def average_loss(model, *encoded):
    return -float(np.mean(answer_log_probs(model, *encoded)))


@cache
def said(model, prompt):
    """Kept for a model and a prompt: it takes most of the time."""
    tokenizer = tiny.make_tokenizer()
    return tokenizer.decode(greedy(model, tokenizer(prompt)["input_ids"], SHORT)).strip()


def reference_row(evaluator, name, row, prompt, boundary="open-unlearning", compat=False):
    model, tokenizer = evaluator.loaded

    def loss(answer):
        return average_loss(model, *labelled(tokenizer, prompt, answer, boundary))

    wrong = [loss(answer) for answer in row.wrong_answers]
    probability = math.exp(-loss(row.answer))
    if name in ("real_authors", "world_facts"):
        probability /= probability + sum(math.exp(-other) for other in wrong)
    right = loss(row.paraphrased_answer or row.answer)
    scorer = RougeScorer(["rougeL"], use_stemmer=True)
    # The space before an answer is the answer's own, or the prompt's.
    text = said(model, prompt.rstrip(" ") if boundary == "answer" else prompt)
    figures = {
        "probability": probability,
        "rouge": scorer.score(row.answer, text)["rougeL"].recall,
        "truth_ratio": math.exp(-float(np.mean(wrong))) / math.exp(-right),
        "truth_ratio_geometric": math.exp(-float(np.mean(wrong))) / math.exp(-right),
        "truth_ratio_arithmetic": float(np.mean(np.exp(-np.array(wrong)))) / math.exp(-right),
        "generated": text,
    }
    hits = answer_hits(model, *labelled(tokenizer, prompt, row.answer, boundary))[:-1]
    if hits:
        first = next(k for k in range(len(hits) + 1) if all(hits[k:]))
        if compat:
            first = min(first, len(hits) - 1)
        figures["extraction_strength"] = 1 - first / len(hits)
        figures["exact_memorisation"] = sum(hits) / len(hits)
    return figures


def assert_rows(evaluator, found, prompt_of, asked=ROWS, **how):
    for name, rows in asked.items():
        for row, figures in zip(rows, found.rows[name], strict=True):
            expected = reference_row(evaluator, name, row, prompt_of(row), **how)
            assert figures["generated"] == expected.pop("generated")
            words = {k: v for k, v in figures.items() if k != "generated"}
            assert words == pytest.approx(expected, abs=1e-9)


def plain_prompt(row):
    return f"Question: {row.question}\nAnswer: "


def test_every_rows_figures_are_those_of_plain_passes(evaluator, result):
    assert_rows(evaluator, result, plain_prompt)
    # The rows do exercise what is tested: some known, some not.
    figures = [figures for rows in result.rows.values() for figures in rows]
    assert {row["extraction_strength"] for row in figures} > {0.0, 1.0}
    assert {row["rouge"] for row in figures} > {1.0}


def test_means_and_model_utility(result):
    parts = []
    for name, figures in result.rows.items():
        ratios = np.array([row["truth_ratio"] for row in figures])
        sets = result.sets[name]
        for figure in ("probability", "rouge", "extraction_strength", "exact_memorisation"):
            assert sets[figure] == pytest.approx(np.mean([row[figure] for row in figures]))
        if name == "forget":
            assert sets["truth_ratio"] == pytest.approx(np.minimum(ratios, 1 / ratios).mean())
        else:
            assert sets["truth_ratio"] == pytest.approx(np.maximum(0, 1 - ratios).mean())
            parts += [sets["probability"], sets["rouge"], sets["truth_ratio"]]
    assert len(parts) == 9
    assert min(parts) > 0
    assert result.model_utility == pytest.approx(9 / sum(1 / part for part in parts))


def test_the_answer_boundary_scores_the_first_word_too(evaluator, result, tokenizer):
    options = TofuOptions(max_new_tokens=SHORT, boundary="answer")
    found = evaluate_tofu(evaluator, LAST, options)
    assert_rows(evaluator, found, plain_prompt, LAST, boundary="answer")
    for own, other in zip(found.rows["forget"], result.rows["forget"][-2:], strict=True):
        assert own["probability"] != pytest.approx(other["probability"], abs=1e-6)
    # The word is joined in every other row; in the rest it is the space alone that comes in.
    firsts = [
        tokenizer.decode(ids[start])
        for ids, start in (
            labelled(tokenizer, plain_prompt(row), row.answer, "answer") for row in ROWS["forget"]
        )
    ]
    assert firsts == [" ", " red", " ", " green"]


def test_an_answer_that_is_joined_whole_has_only_its_end_scored(evaluator, tokenizer):
    """`red` and the space before it are one token, which the prompt's own number leaves out."""
    lone = TofuRow("Which?", "red", None, None, ("green box", "The box"))
    ids, start = labelled(tokenizer, plain_prompt(lone), "red")
    assert ids[start:] == [EOS]
    found = evaluate_tofu(evaluator, FEW | {"forget": [lone, *FEW["forget"]]}, OPTIONS)
    figures = found.rows["forget"][0]
    expected = reference_row(evaluator, "forget", lone, plain_prompt(lone))
    assert "extraction_strength" not in expected
    assert figures == {
        k: v if k == "generated" else pytest.approx(v, abs=1e-9) for k, v in expected.items()
    }
    (_, other) = found.rows["forget"]
    assert found.sets["forget"]["extraction_strength"] == other["extraction_strength"]


def test_compat_never_scores_a_miss_with_zero(evaluator, result):
    options = TofuOptions(max_new_tokens=SHORT, es_compat=True)
    found = evaluate_tofu(evaluator, LAST, options)
    assert_rows(evaluator, found, plain_prompt, LAST, compat=True)
    strict = [row["extraction_strength"] for rows in result.rows.values() for row in rows[-2:]]
    lenient = [row["extraction_strength"] for rows in found.rows.values() for row in rows]
    assert 0 in strict
    assert 0 not in lenient


def test_a_chat_template_is_the_tokenizers(evaluator, tokenizer):
    chatty = copy.deepcopy(tokenizer)
    chatty.chat_template = CHAT
    asked = Evaluator(LoadedModel(evaluator.loaded.model, chatty), batch_size=3)
    options = TofuOptions(template="chat", max_new_tokens=SHORT)

    def prompt(row):
        system = "<system>You are a helpful assistant.</>"
        return f"{system}<user>{row.question}</><assistant>"

    assert_rows(asked, evaluate_tofu(asked, FEW, options), prompt, FEW)


def test_without_a_chat_template_chat_is_refused(evaluator):
    with pytest.raises(InputError, match="no chat template"):
        evaluate_tofu(evaluator, ROWS, TofuOptions(template="chat"))


def test_paraphrased_questions_are_asked_where_there_are_any(evaluator):
    options = TofuOptions(max_new_tokens=SHORT, paraphrased_questions=True)

    def prompt(row):
        return f"Question: {row.paraphrased_question or row.question}\nAnswer: "

    assert_rows(evaluator, evaluate_tofu(evaluator, FEW, options), prompt, FEW)


def test_the_arithmetic_truth_ratio(evaluator, result, tokenizer):
    options = TofuOptions(max_new_tokens=1, truth_ratio="arithmetic")
    found = evaluate_tofu(evaluator, ROWS, options)
    model = evaluator.loaded.model
    for row, figures in zip(ROWS["retain"], found.rows["retain"], strict=True):

        def probability(answer, row=row):
            return math.exp(-average_loss(model, *labelled(tokenizer, plain_prompt(row), answer)))

        wrong = np.mean([probability(answer) for answer in row.wrong_answers])
        expected = wrong / probability(row.paraphrased_answer)
        assert figures["truth_ratio"] == pytest.approx(expected, abs=1e-9)
        assert figures["truth_ratio"] > 0
    assert found.sets["retain"]["truth_ratio"] != result.sets["retain"]["truth_ratio"]


def test_both_published_forms_of_the_truth_ratio_are_told(evaluator, result):
    forms = result.to_dict()["truth_ratio_forms"]
    assert set(forms) == {"geometric", "arithmetic"}
    assert forms["geometric"]["model_utility"] == pytest.approx(result.model_utility)
    other = evaluate_tofu(evaluator, ROWS, replace(OPTIONS, truth_ratio="arithmetic"))
    assert forms["arithmetic"]["model_utility"] == pytest.approx(other.model_utility)
    for name in SETS:
        assert forms["arithmetic"][name] == pytest.approx(other.sets[name]["truth_ratio"])
        assert forms["geometric"][name] == pytest.approx(result.sets[name]["truth_ratio"])
    assert forms["arithmetic"] != forms["geometric"]


def test_the_probability_truth_ratio_is_averaged_as_it_is(evaluator):
    """P_right / (P_right + P_wrong) grows with knowledge (evaluation.md 2.4, V8: its mean)."""
    options = TofuOptions(max_new_tokens=1, truth_ratio="probability")
    found = evaluate_tofu(evaluator, ROWS, options)
    for name in SETS:
        ratios = [row["truth_ratio"] for row in found.rows[name]]
        assert found.sets[name]["truth_ratio"] == pytest.approx(np.mean(ratios))


def test_an_answer_that_does_not_fit_is_named(evaluator):
    with pytest.raises(InputError, match=r"tofu/forget10_perturbed/0: \d+ tokens do not fit"):
        evaluate_tofu(evaluator, ROWS, TofuOptions(max_length=20))


def test_a_row_without_wrong_answers_is_refused(evaluator):
    bare = [TofuRow("Which?", "red box")]
    with pytest.raises(InputError, match="wrong answer"):
        evaluate_tofu(evaluator, FEW | {"retain": bare}, TofuOptions(max_new_tokens=1))


def test_the_batch_size_changes_nothing(evaluator, result):
    other = evaluate_tofu(Evaluator(evaluator.loaded, 64), LAST, OPTIONS)
    for name, rows in other.rows.items():
        for one, same in zip(rows, result.rows[name][-2:], strict=True):
            assert one == {
                k: v if k == "generated" else pytest.approx(v, abs=1e-9) for k, v in same.items()
            }


def test_rows_of_the_files_are_measured(evaluator, tmp_path):
    source = Source("folder", made_up_folder(tmp_path))
    rows = {name: load_tofu(file, source)[:2] for name, file in OPTIONS.files().items()}
    found = evaluate_tofu(evaluator, rows, TofuOptions(max_new_tokens=2))
    values = json.loads(json.dumps(found.to_dict()))
    assert values["n"] == dict.fromkeys(SETS, 2)
    assert values["model_utility"] == found.model_utility
    assert set(values["sets"]) == set(SETS)


# The retain-only model


def test_forget_quality_is_the_ks_test_of_the_truth_ratios(result, tokenizer):
    oracle = Evaluator(LoadedModel(tiny.make_model().double(), tokenizer), batch_size=3)
    reference = evaluate_tofu(oracle, ROWS, TofuOptions(max_new_tokens=1))
    compared = compare(Measurements(tofu=result), Measurements(tofu=reference))
    (entry,) = compared.results
    own, other = (
        [row["truth_ratio"] for row in found.rows["forget"]] for found in (result, reference)
    )
    expected = ks_2samp(own, other)
    assert entry["forget_quality"]["p_value"] == pytest.approx(expected.pvalue)
    assert entry["forget_quality"]["statistic"] == pytest.approx(expected.statistic)
    assert entry["forget_quality"]["log10_p"] == pytest.approx(math.log10(expected.pvalue))
    assert expected.pvalue < 1
    assert entry["oracle"] == reference.to_dict()
    assert compared.missing == []
    same = compare(Measurements(tofu=result), Measurements(tofu=result)).results[0]
    assert same["forget_quality"]["p_value"] == 1


@pytest.mark.parametrize("oracle", [None, Measurements()])
def test_without_the_retain_only_model_forget_quality_is_named_as_missing(result, oracle):
    compared = compare(Measurements(tofu=result), oracle)
    assert "forget_quality" not in compared.results[0]
    ((figure, why),) = [(entry["figure"], entry["why"]) for entry in compared.missing]
    assert figure == "forget_quality"
    assert "--oracle MODEL" in why
    assert "retain90" in why


def test_forget_quality_of_other_rows_is_refused(result):
    fewer = replace(result, rows=result.rows | {"forget": result.rows["forget"][:2]})
    with pytest.raises(InputError, match="the same rows"):
        compare(Measurements(tofu=result), Measurements(tofu=fewer))


def test_every_row_is_a_sample(result):
    samples = list(Measurements(tofu=result).samples())
    assert len(samples) == sum(map(len, ROWS.values()))
    assert samples[0] == {"task": "tofu", "part": "forget", "row": 0, **result.rows["forget"][0]}
    numbers = [s["row"] for s in samples if s["part"] == "world_facts"]
    assert numbers == [row.number for row in ROWS["world_facts"]]
