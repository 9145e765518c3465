"""Membership inference on a model: can forgotten answers be told from unseen ones?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tfrnet.data.examples import Encoded
from tfrnet.data.tofu import TofuRow, encode_answer, tofu_prompt
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.gradient_norm import gradient_norms
from tfrnet.evaluation.metrics import membership as metrics
from tfrnet.evaluation.metrics.intervals import auc_standard_error
from tfrnet.evaluation.tofu import TofuOptions
from tfrnet.models.token_scores import TokenScores

ATTACKS = ("loss", "zlib", "min_k", "min_k_plus_plus")
# White-box, so it is not one of the four that the MIA gap is the mean of.
GRADIENT_NORM = "gradient_norm"
# The attack that PrivLeak is computed from.
LEAK_ATTACK = "min_k"


@dataclass(frozen=True)
class PrivacyResult:
    """The AUC of each attack; `scores` are (members, non-members) by attack.

    `numbers` are the row numbers of both in their files. `more` has the scores of attacks that
    do not count in the gap.
    """

    aucs: Mapping[str, float]
    blind: metrics.BlindBaselines
    scores: Mapping[str, metrics.Sides] = field(repr=False)
    numbers: tuple[Sequence[int], Sequence[int]] = field(repr=False, default=((), ()))
    more: Mapping[str, metrics.Sides] = field(repr=False, default_factory=dict)

    @property
    def gap(self) -> float:
        """The mean distance of the AUCs from one half."""
        return metrics.mia_gap(list(self.aucs.values()))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without the scores."""
        sizes = [len(side) for side in self.scores[LEAK_ATTACK]]
        aucs = {**self.aucs, **{name: metrics.auc(*pair) for name, pair in self.more.items()}}
        return {
            "task": "privacy",
            "n": dict(zip(("members", "non_members"), sizes, strict=True)),
            "auc": {
                # A higher score indicates a non-member, so non-members are the positives.
                name: {"value": value, "stderr": auc_standard_error(value, *reversed(sizes))}
                for name, value in aucs.items()
            },
            "mia_gap": self.gap,
            "blind_baselines": asdict(self.blind),
        }


def evaluate_privacy(
    evaluator: Evaluator,
    members: Sequence[TofuRow],
    non_members: Sequence[TofuRow],
    options: TofuOptions,
    k: float = 0.4,
    gradients: bool = False,
) -> PrivacyResult:
    """Run the four attacks on answers that the model may have seen and on unseen ones.

    `gradients` adds the white-box attack by gradient norm: one backward pass per answer.
    """
    encoded = [
        _encoded(evaluator, rows, f"tofu/{split}", options)
        for rows, split in zip((members, non_members), options.membership_files(), strict=True)
    ]
    sides = [_attack(evaluator, side, k) for side in encoded]
    more = {}
    if gradients:
        model = evaluator.loaded.model
        first, second = (gradient_norms(model, side, evaluator.advance) for side in encoded)
        more[GRADIENT_NORM] = (first, second)
    scores = {name: (sides[0][name], sides[1][name]) for name in ATTACKS}
    return PrivacyResult(
        aucs={name: metrics.auc(*pair) for name, pair in scores.items()},
        blind=metrics.blind_baselines(
            [row.answer for row in members], [row.answer for row in non_members]
        ),
        scores=scores,
        numbers=([row.number for row in members], [row.number for row in non_members]),
        more=more,
    )


def compare_with_oracle(
    result: PrivacyResult, oracle: PrivacyResult, seed: int = 0
) -> dict[str, Any]:
    """Return PrivLeak in its three readings, with intervals, and the oracle's own figures."""
    leak = metrics.privleak(result.aucs[LEAK_ATTACK], oracle.aucs[LEAK_ATTACK])
    intervals = metrics.bootstrap_privacy(
        result.scores[LEAK_ATTACK], oracle.scores[LEAK_ATTACK], seed
    )
    per_attack = [metrics.privacy_score(result.aucs[n], oracle.aucs[n]) for n in ATTACKS]
    return {
        "privleak": leak.absolute,
        "privleak_signed": leak.signed,
        "privleak_ratio": leak.ratio,
        "privleak_difference": leak.difference,
        "privleak_signed_interval": intervals.privleak,
        "auc_difference_interval": intervals.auc_difference,
        "privacy_score": metrics.mean_privacy_score(per_attack),
        "reference_auc": _reference_auc(result, oracle),
        "oracle_auc": dict(oracle.aucs),
        "oracle_mia_gap": oracle.gap,
    }


def _reference_auc(result: PrivacyResult, oracle: PrivacyResult) -> float:
    """Return the AUC of the attack that takes the oracle as its reference model."""
    first, second = (
        [metrics.reference_score(a, b) for a, b in zip(own, other, strict=True)]
        for own, other in zip(result.scores["loss"], oracle.scores["loss"], strict=True)
    )
    return metrics.auc(first, second)


def _encoded(
    evaluator: Evaluator, rows: Sequence[TofuRow], label: str, options: TofuOptions
) -> list[Encoded]:
    tokenizer = evaluator.loaded.tokenizer
    return [
        encode_answer(
            tofu_prompt(row.question, tokenizer, options.template),
            row.answer,
            tokenizer,
            options.max_length,
            f"{label}/{row.number}",
            options.boundary,
        )
        for row in rows
    ]


def _attack(evaluator: Evaluator, encoded: Sequence[Encoded], k: float) -> dict[str, list[float]]:
    tokenizer = evaluator.loaded.tokenizer
    scores = [answers[0] for answers in evaluator.score([[e] for e in encoded], moments=True)]
    texts = [tokenizer.decode(e.ids[e.answer_start :], skip_special_tokens=True) for e in encoded]
    per_row = [_row_scores(score, text, k) for score, text in zip(scores, texts, strict=True)]
    return {name: [row[name] for row in per_row] for name in ATTACKS}


def _row_scores(score: TokenScores, text: str, k: float) -> dict[str, float]:
    """Score one answer; as in OpenUnlearning, only LOSS and ZLIB count the end of the text."""
    words = score.without_last()
    return {
        "loss": metrics.loss_score(score.log_probs),
        "zlib": metrics.zlib_score(score.log_probs, text),
        "min_k": metrics.min_k_score(words.log_probs, k),
        "min_k_plus_plus": metrics.min_k_plus_plus_score(
            words.log_probs, words.mean, words.variance, k
        ),
    }
