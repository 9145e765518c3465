import json
import math
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax
from sklearn.metrics import roc_auc_score

from tfrnet.core.errors import InputError
from tfrnet.evaluation.metrics.membership import (
    auc,
    blind_baselines,
    bootstrap_privacy,
    gradient_norm_score,
    loss_score,
    mean_privacy_score,
    mia_gap,
    min_k_plus_plus_score,
    min_k_score,
    privacy_score,
    privleak,
    reference_score,
    zlib_score,
)

pytestmark = pytest.mark.filterwarnings("error")

TOFU = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "tofu"
NEEDS_ORACLE = "PrivLeak needs the retain-only model's AUC; give --oracle MODEL"
LOG_PROBS = [-0.05, -2.30, -0.70, -4.10, -0.01, -1.20, -3.00, -0.40, -0.09, -0.60]

scores = st.lists(st.integers(0, 5).map(float), min_size=1, max_size=20)


def exactly(value, tolerance=1e-9):
    return pytest.approx(value, rel=0, abs=tolerance)


@pytest.mark.parametrize(
    ("k", "score"), [(0.1, 4.10), (0.2, 3.55), (0.4, 2.65), (0.6, 11.9 / 6), (1.0, 1.245)]
)
def test_min_k(k, score):
    assert min_k_score(LOG_PROBS, k) == exactly(score)


def test_min_k_of_short_answers():
    assert min_k_score([-1, -3]) == 3.0
    assert min_k_score(LOG_PROBS[:7]) == exactly(3.55)
    assert min_k_score([]) == 0
    assert loss_score(LOG_PROBS) == exactly(1.245)


@given(st.lists(st.floats(-30, 0), min_size=1), st.floats(0.01, 1))
def test_min_k_against_a_plain_loop(log_probs, k):
    left, lowest = list(log_probs), []
    for _ in range(max(1, math.floor(k * len(log_probs)))):
        lowest.append(min(left))
        left.remove(lowest[-1])
    assert min_k_score(log_probs, k) == exactly(-sum(lowest) / len(lowest))
    assert min_k_score(log_probs, k) >= loss_score(log_probs) - 1e-9


def test_min_k_plus_plus():
    logits = np.array(
        [[2, 0.5, -1, 0], [0, 0, 0, 0], [3, 1, 1, -2], [-1, 2.5, 0.3, 0.2], [0.1, 0.2, 0.3, 4]]
    )
    log_p = log_softmax(logits, axis=1)
    chosen = log_p[range(5), [0, 2, 1, 1, 0]]
    mean = (np.exp(log_p) * log_p).sum(axis=1)
    variance = (np.exp(log_p) * log_p**2).sum(axis=1) - mean**2
    assert chosen == exactly(
        [-0.3423495824, -1.3862943611, -2.2448334268, -0.2161264977, -3.9651660209]
    )
    assert mean == exactly(
        [-0.8782811753, -1.3862943611, -0.6949876742, -0.6834366648, -0.3044808996]
    )
    assert variance == exactly([0.7718683616, 0, 0.7767901520, 0.9389735979, 0.8509506408])
    for k, score in ((0.2, 3.9683520122), (0.4, 2.8634143636), (1.0, 0.9269121251)):
        assert min_k_plus_plus_score(chosen, mean, variance, k) == exactly(score)
    assert min_k_plus_plus_score(chosen, mean, variance) == exactly(2.8634143636)
    z = [0.6100111023, 0, -1.7584767150, 0.4822569993, -3.9683520122]
    for position in range(5):
        one = slice(position, position + 1)
        found = min_k_plus_plus_score(chosen[one], mean[one], variance[one])
        assert found == exactly(-z[position])


def test_the_variance_is_clamped():
    assert min_k_plus_plus_score([-1.0], [-1.5], [0.0]) == exactly(-500)
    assert min_k_plus_plus_score([-1.0], [-1.5], [-1e-9]) == exactly(-500)
    with pytest.raises(InputError, match="for each token"):
        min_k_plus_plus_score([-1.0], [-1.5, -1.5], [1.0])


@pytest.mark.parametrize("text", ["a" * 100, "The author's full name is Hsiao Yun-Hwa.", "", "é"])
def test_zlib(text):
    # The compressed lengths (12, 48 and 8 with zlib 1.2.13) depend on the build.
    assert zlib_score([-2.0], text) == exactly(2 / len(zlib.compress(text.encode("utf-8"))))


@pytest.mark.parametrize("score", [loss_score, min_k_score, mia_gap])
def test_what_is_not_a_number_is_refused(score):
    with pytest.raises(InputError):
        score([-1.0, math.nan])
    for k in (0, 1.1, math.nan):
        with pytest.raises(InputError, match="share k"):
            min_k_score(LOG_PROBS, k)
    with pytest.raises(InputError):
        loss_score([])


def test_reference_and_gradient_norm_by_hand():
    # Norms of 3 and 4: their mean, not the norm of both together, which is 5.
    assert gradient_norm_score([3.0, 4.0]) == 3.5
    assert reference_score(1.3, 1.7) == pytest.approx(-0.4)
    with pytest.raises(InputError, match="gradient norm"):
        gradient_norm_score([])


def test_auc_counts_a_tie_half():
    assert auc([0.5, 0.8, 1.1, 1.4], [0.9, 1.2, 1.4, 2.0]) == 0.78125
    assert auc([0.9, 1.2, 1.4, 2.0], [0.5, 0.8, 1.1, 1.4]) == 0.21875
    assert auc([0.1, 1.0], [2.0, math.inf]) == 1  # memorised members have the lower scores


@given(scores, scores)
def test_auc_against_a_count_of_pairs(members, others):
    wins = sum((o > m) + 0.5 * (o == m) for m in members for o in others)
    assert auc(members, others) == exactly(wins / (len(members) * len(others)))


@pytest.mark.parametrize("bad", [[], [1.0, math.nan]])
def test_auc_needs_numbers_on_both_sides(bad):
    with pytest.raises(InputError, match="member's score"):
        auc(bad, [1.0])
    with pytest.raises(InputError, match="non-member's score"):
        auc([1.0], bad)


@pytest.mark.parametrize(
    ("unlearned", "oracle", "signed", "ratio"),
    [
        (0.99, 0.40, -98.3333, 147.5),
        (0.5559, 0.3821, -28.1275, 45.4855),
        (0.40, 0.40, 0, 0),
        (0.05, 0.40, 58.3333, 87.5),
        (0.62, 0.50, -24, 24),
    ],
)
def test_privleak(unlearned, oracle, signed, ratio):
    leak = privleak(unlearned, oracle)
    assert leak.signed == exactly(signed, 1e-4)
    assert leak.absolute == exactly(abs(signed), 1e-4)
    assert leak.ratio == exactly(ratio, 1e-4)
    assert leak.difference == exactly(100 * abs(unlearned - oracle))


def test_readings_that_would_divide_by_zero_have_no_value():
    assert privleak(0.5, 1).signed is None
    assert privleak(0.5, 1).absolute is None
    assert privleak(0.5, 0).ratio is None
    assert privleak(0.5, 0).signed == -50


def test_nothing_takes_the_place_of_a_missing_oracle():
    with pytest.raises(InputError, match=f"^{NEEDS_ORACLE}$"):
        privleak(0.5, None)
    with pytest.raises(InputError, match="The privacy score needs the retain-only model's AUC"):
        privacy_score(0.5, None)
    with pytest.raises(InputError, match=f"^{NEEDS_ORACLE}$"):
        bootstrap_privacy(([0.0], [1.0]), None, seed=0)
    for pair in ((1.1, 0.5), (0.5, math.nan)):
        with pytest.raises(InputError, match="from 0 to 1"):
            privleak(*pair)


def test_gap_and_privacy_score():
    assert mia_gap([0.58, 0.47, 0.61, 0.44]) == exactly(0.07)
    assert privacy_score(0.5, 0.4) == exactly(0.75)
    assert privacy_score(0.3, 0.4) == exactly(0.75)
    assert privacy_score(0.9, 0.4) == 0
    assert (privacy_score(0, 0), privacy_score(0.1, 0)) == (1, 0)
    assert mean_privacy_score([0.75, 0.5, 1, 1]) == exactly(4 / (4 / 3 + 2 + 1 + 1))
    assert mean_privacy_score([0.75, 0, 1, 1]) == 0


def two_models():
    generator = np.random.default_rng(3)
    members, others = generator.normal(0, 1, 40).round(1), generator.normal(0.3, 1, 30).round(1)
    return (members - generator.normal(1, 0.2, 40), others), (members, others)


def test_bootstrap_against_a_loop_over_resamples():
    unlearned, oracle = two_models()
    generator = np.random.default_rng(7)
    members = generator.multinomial(40, [1 / 40] * 40, 200)
    others = generator.multinomial(30, [1 / 30] * 30, 200)
    labels = [0] * 40 + [1] * 30
    pairs = [
        [roc_auc_score(labels, np.repeat(np.concatenate(sides), [*m, *o])) for sides in models]
        for m, o in zip(members, others, strict=True)
        for models in [(unlearned, oracle)]
    ]
    u, r = np.array(pairs).T
    found = bootstrap_privacy(unlearned, oracle, seed=7, resamples=200)
    assert tuple(found.auc_difference) == exactly(tuple(np.quantile(u - r, [0.025, 0.975])))
    leaks = [privleak(*pair).signed for pair in pairs]
    assert tuple(found.privleak) == exactly(tuple(np.quantile(leaks, [0.025, 0.975])))
    assert found == bootstrap_privacy(unlearned, oracle, seed=7, resamples=200)
    assert found != bootstrap_privacy(unlearned, oracle, seed=8, resamples=200)


def test_a_model_does_not_differ_from_itself_in_any_resample():
    _, oracle = two_models()
    found = bootstrap_privacy(oracle, oracle, seed=0)
    assert found.auc_difference == found.privleak == (0, 0)


def test_bootstrap_without_a_value_or_of_other_rows():
    apart = ([0.0, 1.0], [2.0, 3.0])
    assert bootstrap_privacy(([0.0, 1.0], [0.0, 1.0]), apart, seed=0).privleak is None
    with pytest.raises(InputError, match="same rows"):
        bootstrap_privacy(([0.0], [2.0, 3.0]), apart, seed=0)


def test_blind_baselines():
    found = blind_baselines(["ab", "é"], ["abcdefgh", "ab", "xyz"])
    assert found.answer_length == exactly(5.5 / 6)
    assert found.compressed_length + found.inverse_compressed_length == exactly(1)


def test_blind_baselines_of_tofu():
    if not TOFU.is_dir():
        pytest.skip(f"needs the TOFU files in {TOFU}")
    texts = [
        [json.loads(line)["answer"] for line in (TOFU / name).read_text("utf-8").splitlines()]
        for name in ("forget10.jsonl", "holdout10.jsonl")
    ]
    found = blind_baselines(*texts)
    # Compressed lengths depend on the zlib build; these are of 1.2.13.
    assert found.compressed_length == exactly(0.635475, 2e-3)
    assert found.inverse_compressed_length == exactly(1 - found.compressed_length)
    assert found.answer_length == exactly(0.64479375)
