"""TOFU on a model: the likelihood of right and wrong answers, and the generated text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfrnet.data.examples import Encoded
from tfrnet.data.tofu import Boundary, Template, TofuRow, encode_answer, tofu_prompt
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.metrics import tofu_scores as metrics
from tfrnet.models.token_scores import TokenScores

FORGET = "forget"
REAL_WORLD = ("real_authors", "world_facts")
SETS = (FORGET, "retain", *REAL_WORLD)
FORMS: tuple[metrics.TruthRatio, ...] = ("geometric", "arithmetic")


@dataclass(frozen=True)
class TofuOptions:
    """How questions are asked and scored; the defaults are OpenUnlearning's for base models."""

    template: Template = "qa"
    boundary: Boundary = "open-unlearning"
    max_length: int = 512
    max_new_tokens: int = 200
    truth_ratio: metrics.TruthRatio = "geometric"
    es_compat: bool = False
    paraphrased_questions: bool = False
    # Which of TOFU's forget sets is measured: the last 1, 5 or 10 % of the authors.
    forget: str = "10"

    def files(self) -> dict[str, str]:
        """Return the splits of the sets that are measured."""
        return {FORGET: f"forget{self.forget}_perturbed"} | {
            name: f"{name}_perturbed" for name in SETS if name != FORGET
        }

    def membership_files(self) -> tuple[str, str]:
        """Return the splits of the forgotten answers and of answers that no model has seen."""
        return f"forget{self.forget}_perturbed", f"holdout{self.forget}"


@dataclass(frozen=True)
class TofuResult:
    """Means by set, Model Utility, and every row's figures and number in its file."""

    sets: Mapping[str, Mapping[str, float]]
    model_utility: float
    rows: Mapping[str, Sequence[Mapping[str, Any]]] = field(repr=False)
    numbers: Mapping[str, Sequence[int]] = field(repr=False, default_factory=dict)

    def truth_ratios(self) -> list[float]:
        """Return the forget set's truth ratios, which Forget Quality compares."""
        return [row["truth_ratio"] for row in self.rows[FORGET]]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without the rows."""
        return {
            "task": "tofu",
            "n": {name: len(rows) for name, rows in self.rows.items()},
            "model_utility": self.model_utility,
            "sets": {name: dict(values) for name, values in self.sets.items()},
            "truth_ratio_forms": {form: self._in_form(form) for form in FORMS},
        }

    def _in_form(self, form: str) -> dict[str, float]:
        """Return the sets' truth ratios and Model Utility in one of the two published forms."""
        ratios = {
            name: _aggregate(name, [row[f"truth_ratio_{form}"] for row in rows])
            for name, rows in self.rows.items()
        }
        parts = {
            (split, metric): ratios[split] if metric == "truth_ratio" else self.sets[split][metric]
            for split, metric in metrics.UTILITY_PARTS
        }
        return ratios | {"model_utility": metrics.model_utility(parts)}


def evaluate_tofu(
    evaluator: Evaluator, rows: Mapping[str, Sequence[TofuRow]], options: TofuOptions
) -> TofuResult:
    """Measure the four sets of `SETS`."""
    measured = {name: _measure(evaluator, name, rows[name], options) for name in SETS}
    sets = {name: _means(name, values, options) for name, values in measured.items()}
    parts = {(split, metric): sets[split][metric] for split, metric in metrics.UTILITY_PARTS}
    numbers = {name: [row.number for row in rows[name]] for name in SETS}
    return TofuResult(sets, metrics.model_utility(parts), measured, numbers)


def _measure(
    evaluator: Evaluator, name: str, rows: Sequence[TofuRow], options: TofuOptions
) -> list[dict[str, Any]]:
    tokenizer = evaluator.loaded.tokenizer
    prompts = [tofu_prompt(_question(row, options), tokenizer, options.template) for row in rows]
    groups = [
        _encode(evaluator, prompt, row, f"tofu/{options.files()[name]}/{row.number}", options)
        for prompt, row in zip(prompts, rows, strict=True)
    ]
    if options.boundary == "answer":
        # The space belongs to the answer, so the model generates it as it was trained to.
        prompts = [prompt.rstrip(" ") for prompt in prompts]
    texts = evaluator.generate(prompts, options.max_new_tokens)
    scores = evaluator.score(groups)
    return [
        _row_figures(name, row, group, text, options)
        for row, group, text in zip(rows, scores, texts, strict=True)
    ]


def _question(row: TofuRow, options: TofuOptions) -> str:
    wanted = row.paraphrased_question if options.paraphrased_questions else None
    return wanted or row.question


def _encode(
    evaluator: Evaluator, prompt: str, row: TofuRow, label: str, options: TofuOptions
) -> list[Encoded]:
    """Encode the answer, its paraphrase for the truth ratio, and the wrong answers."""
    answers = (row.answer, row.right_answer(), *row.wrong_answers)
    tokenizer = evaluator.loaded.tokenizer
    return [
        encode_answer(prompt, answer, tokenizer, options.max_length, label, options.boundary)
        for answer in answers
    ]


def _row_figures(
    name: str, row: TofuRow, scores: Sequence[TokenScores], text: str, options: TofuOptions
) -> dict[str, Any]:
    answer, right, *wrong = scores
    losses = [score.average_loss for score in wrong]
    own = metrics.probability(answer.average_loss)
    if name in REAL_WORLD:
        own = metrics.option_probability(own, [metrics.probability(loss) for loss in losses])
    figures: dict[str, Any] = {
        "probability": own,
        "rouge": metrics.rouge_l_recall(row.answer, text.strip()),
        "truth_ratio": metrics.truth_ratio(right.average_loss, losses, options.truth_ratio),
        "generated": text.strip(),
    } | {
        f"truth_ratio_{form}": metrics.truth_ratio(right.average_loss, losses, form)
        for form in FORMS
    }
    # Answers whose only scored token is the end of the text say nothing about memorisation.
    if hits := answer.without_last().is_argmax:
        labels = [True] * len(hits)
        figures["extraction_strength"] = metrics.extraction_strength(
            hits, labels, options.es_compat
        )
        figures["exact_memorisation"] = metrics.exact_memorisation(hits, labels)
    return figures


def _means(name: str, rows: Sequence[Mapping[str, Any]], options: TofuOptions) -> dict[str, float]:
    def mean(figure: str) -> float:
        values = [row[figure] for row in rows if figure in row]
        return float(sum(values) / len(values)) if values else float("nan")

    means = {figure: mean(figure) for figure in ("probability", "rouge", "truth_ratio")}
    if options.truth_ratio != "probability":
        means["truth_ratio"] = _aggregate(name, [row["truth_ratio"] for row in rows])
    for figure in ("extraction_strength", "exact_memorisation"):
        if any(figure in row for row in rows):
            means[figure] = mean(figure)
    return means


def _aggregate(name: str, ratios: Sequence[float]) -> float:
    return (metrics.forget_truth_ratio if name == FORGET else metrics.retain_truth_ratio)(ratios)
