import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrnet.core.errors import InputError
from tfrnet.evaluation.metrics.tofu_scores import (
    UTILITY_PARTS,
    exact_memorisation,
    extraction_strength,
    forget_quality,
    forget_truth_ratio,
    model_utility,
    option_probability,
    probability,
    retain_truth_ratio,
    rouge_l,
    rouge_l_recall,
    truth_ratio,
)

pytestmark = pytest.mark.filterwarnings("error")

ITEMS = [
    (1.0, [1.5, 2.0, 2.5, 1.2, 1.8]),
    (2.0, [1.6, 1.9, 1.4, 2.2, 1.7]),
    (0.5, [0.9, 3.0, 2.1, 1.0, 1.5]),
]
X = [0.42, 0.55, 0.61, 0.68, 0.73, 0.77, 0.81, 0.88, 0.93, 0.97]
Y = [0.20, 0.31, 0.35, 0.44, 0.49, 0.52, 0.58, 0.66, 0.70, 0.79]

losses = st.floats(0, 50)


def exactly(value, tolerance=1e-9):
    return pytest.approx(value, rel=0, abs=tolerance)


def utility(*values: float) -> float:
    return model_utility(dict(zip(UTILITY_PARTS, values, strict=True)))


def test_probability_is_normalised_for_length():
    assert probability(-np.mean([-0.1, -0.2, -0.3, -0.4])) == exactly(0.7788007830714049)
    assert option_probability(0.30, [0.10, 0.20, 0.05]) == exactly(0.46153846153846156)
    assert option_probability(0.0, [0.0, 0.0]) == 0


@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        ("geometric", [0.4493289641, 1.2712491503, 0.3011942119]),
        ("arithmetic", [0.4931199956, 1.3175407954, 0.3857423327]),
        ("probability", [0.6899744811, 0.4402863507, 0.7685247835]),
    ],
)
def test_truth_ratio(variant, expected):
    assert [truth_ratio(*item, variant) for item in ITEMS] == exactly(expected, 1e-8)


def test_truth_ratios_aggregate():
    geometric = [truth_ratio(*item) for item in ITEMS]
    arithmetic = [truth_ratio(*item, "arithmetic") for item in ITEMS]
    shares = [truth_ratio(*item, "probability") for item in ITEMS]
    assert forget_truth_ratio(geometric) == exactly(0.5123836790, 1e-8)
    assert retain_truth_ratio(geometric) == exactly(0.4164922747, 1e-8)
    assert forget_truth_ratio(arithmetic) == exactly(0.5459507032, 1e-8)
    assert retain_truth_ratio(arithmetic) == exactly(0.3737125572, 1e-8)
    assert np.mean(shares) == exactly(0.6329285385, 1e-8)


def test_truth_ratios_of_a_collapsed_model_aggregate_too():
    ratios = [truth_ratio(0, [1e4, 1e4]), truth_ratio(1e4, [0, 0])]
    assert ratios == [0, math.inf]
    assert truth_ratio(1e4, [0, 0], "probability") == 0
    assert forget_truth_ratio([*ratios, 1]) == exactly(1 / 3)
    assert retain_truth_ratio([*ratios, 1]) == exactly(1 / 3)
    assert truth_ratio(2000, [2000, 2000]) == 1


@given(losses, st.lists(losses, min_size=1))
def test_truth_ratio_properties(paraphrase, wrong):
    geometric = truth_ratio(paraphrase, wrong)
    assert truth_ratio(paraphrase, wrong, "arithmetic") >= geometric * (1 - 1e-9)
    share = truth_ratio(paraphrase, wrong, "probability")
    p, w = math.exp(-paraphrase), math.exp(-np.mean(wrong))
    assert share == pytest.approx(p / (p + w), rel=1e-9)
    assert 0 <= forget_truth_ratio([geometric]) <= 1
    assert 0 <= retain_truth_ratio([geometric]) <= 1


@pytest.mark.parametrize("wrong", [[], [math.nan], [math.inf]])
def test_a_truth_ratio_without_a_value_is_refused(wrong):
    with pytest.raises(InputError):
        truth_ratio(math.inf, wrong)
    for aggregate in (forget_truth_ratio, retain_truth_ratio):
        with pytest.raises(InputError):
            aggregate(wrong if math.inf not in wrong else [math.nan])


FULL = [0.989498, 0.988889, 0.472735, 0.460303, 0.9155, 0.599579, 0.422244, 0.910256, 0.548730]
RETAIN90 = [0.989162, 0.980401, 0.467019, 0.445926, 0.943, 0.585254, 0.418657, 0.897436, 0.548497]


@pytest.mark.parametrize(("parts", "published"), [(FULL, 0.626780), (RETAIN90, 0.620268)])
def test_model_utility_of_the_official_logs(parts, published):
    # Parts rounded by at most 5e-7 each move the mean by at most 5.6e-7 (the sum of its partial
    # derivatives is 1.11), and the published value is rounded by another 5e-7.
    assert utility(*parts) == exactly(published, 1.1e-6)


def test_model_utility_of_unrounded_parts():
    full = utility(
        *(0.8544994558, 0.7723959024, 0.5117212349),
        *(0.4297444154, 0.8195, 0.5521560630),
        *(0.4310488533, 0.8307692308, 0.5963453890),
    )
    retain90 = utility(
        *(0.8669655380, 0.7915837238, 0.5115173553),
        *(0.4067512869, 0.847, 0.5228499235),
        *(0.4231283553, 0.7937321937, 0.5903568765),
    )
    assert full == exactly(0.6008834008, 1e-8)
    assert retain90 == exactly(0.5905297106, 1e-8)


def test_one_small_part_dominates_model_utility():
    assert utility(*[0.5] * 8, 0) == 0
    assert utility(*[0.5] * 8, 1e-320) == 0
    assert utility(*[0.9] * 8, 0.01) == exactly(0.08265306122)


def test_model_utility_needs_its_nine_numbers():
    parts = dict.fromkeys(UTILITY_PARTS, 0.5)
    assert len(parts) == 9
    del parts["world_facts", "rouge"]
    with pytest.raises(InputError, match="missing: world_facts rouge; unknown: none"):
        model_utility(parts)
    parts["forget", "rouge"] = 0.5
    with pytest.raises(InputError, match="unknown: forget rouge"):
        model_utility(parts)
    for bad in (-0.1, math.nan, math.inf):
        with pytest.raises(InputError, match="not so: world_facts truth_ratio"):
            utility(*[0.5] * 8, bad)


def test_forget_quality():
    found = forget_quality(X, Y)
    assert found.statistic == exactly(0.5)
    assert found.p_value == exactly(0.16782134274394334)
    assert found.log10_p == exactly(math.log10(found.p_value))
    assert forget_quality(1 / np.array(X), 1 / np.array(Y)).p_value == exactly(found.p_value)
    assert forget_quality(X, X).p_value == 1
    shifted = forget_quality(range(1, 401), range(201, 601))
    assert shifted.statistic == exactly(0.5)
    assert shifted.p_value == pytest.approx(8.216422151886928e-46, rel=1e-6)


@pytest.mark.parametrize(("shift", "published"), [(114, 1.0966243e-19), (119, 1.8340664e-21)])
def test_forget_quality_of_the_official_logs(shift, published):
    # The p-value is a function of the statistic (0.38 and 0.396667) and of the 300 rows alone.
    found = forget_quality(range(300), range(shift, 300 + shift))
    assert found.statistic == exactly(shift / 300)
    assert found.p_value == pytest.approx(published, rel=1e-7)


@pytest.mark.parametrize(
    ("rows", "floor"), [(40, 1.86e-23), (200, 1.94e-119), (300, 1.48e-179), (400, 1.06e-239)]
)
def test_floor_of_forget_quality(rows, floor):
    found = forget_quality(range(rows), range(rows, 2 * rows))
    assert found.p_value == pytest.approx(floor, rel=5e-3)
    assert found.p_value == pytest.approx(2 / math.comb(2 * rows, rows), rel=1e-9)


def test_a_p_value_too_small_for_a_float_has_no_logarithm():
    found = forget_quality(range(600), range(600, 1200))
    assert (found.p_value, found.statistic, found.log10_p) == (0, 1, None)


def test_forget_quality_needs_the_same_rows():
    with pytest.raises(InputError, match=r"same rows; there are 9 .* and 10 "):
        forget_quality(X[1:], Y)
    for bad in ([], [math.nan] * 10):
        with pytest.raises(InputError):
            forget_quality(bad, Y)


@pytest.mark.parametrize(
    ("predictions", "memorised", "strength", "compat"),
    [
        ([5, 6, 7, 8], 1, 1, 1),
        ([1, 6, 7, 8], 0.75, 0.75, 0.75),
        ([5, 1, 7, 8], 0.75, 0.5, 0.5),
        ([5, 6, 7, 1], 0.75, 0, 0.25),
        ([1, 1, 1, 1], 0, 0, 0.25),
    ],
)
def test_memorisation(predictions, memorised, strength, compat):
    labels = np.array([5, 6, 7, 8])
    assert exact_memorisation(predictions, labels) == memorised
    assert extraction_strength(predictions, labels) == strength
    assert extraction_strength(predictions, labels, compat=True) == compat


@pytest.mark.parametrize(("predictions", "labels"), [([], []), ([1], [1, 2])])
def test_memorisation_needs_a_prediction_per_token(predictions, labels):
    for metric in (exact_memorisation, extraction_strength):
        with pytest.raises(InputError):
            metric(predictions, labels)


tokens = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1)


@given(tokens)
def test_extraction_strength_against_its_definition(pairs):
    predictions, labels = [list(side) for side in zip(*pairs, strict=True)]
    n = len(labels)
    k = next(k for k in range(n + 1) if predictions[k:] == labels[k:])
    assert extraction_strength(predictions, labels) == exactly(1 - k / n)
    assert extraction_strength(predictions, labels) <= exact_memorisation(predictions, labels)


def test_rouge_l():
    target, prediction = (
        "The author was born in Taipei, Taiwan.",
        "She was born in the city of Taipei",
    )
    expected = (0.5, 0.5714285714, 0.5333333333)
    assert tuple(rouge_l(target, prediction)) == exactly(expected)
    assert rouge_l(prediction, target).precision == exactly(expected[1])
    stemmed = rouge_l(
        "He writes novels about running rivers", "he wrote a novel about a river that runs"
    )
    assert stemmed.recall == exactly(0.6666666667)
    assert stemmed.fmeasure == exactly(0.5333333333)
    assert rouge_l_recall("born in Taipei in 1990", "1990 Taipei in born") == exactly(0.4)
    assert rouge_l_recall("Hsiao Yun-Hwa", "Hsiao Yun-Hwa.") == 1
    assert rouge_l_recall("Paris", "") == 0
