import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfrnet.core.errors import InputError
from tfrnet.evaluation.metrics.continual import score_stream, trade_off

steady = settings(derandomize=True, deadline=None)

FORGET = {5: 80, 10: 10, 15: 5, 20: 0}
RETAIN = {5: (76, 37, 82), 10: (40, 38, 80), 15: (30, 36, 60), 20: (25, 36, 83)}

percentages = st.floats(0, 100)

# The three streams of TFR-Net in Table 1, and the ends of the scale.
VECTORS = [
    (23.75, 623 / 12, 61.77340702210663),
    (30, 70.25, 70.12477718360071),
    (63.25, 749 / 12, 46.26176470588236),
    (100, 50, 0),
    (0, 100, 100),
    (100, 0, 0),
]


@pytest.mark.parametrize(("forget", "retain", "expected"), VECTORS)
def test_trade_off(forget, retain, expected):
    assert trade_off(forget, retain) == pytest.approx(expected, abs=1e-9)


@steady
@given(percentages, percentages)
def test_trade_off_treats_both_sides_alike_and_lies_between_them(forget, retain):
    value = trade_off(forget, retain)
    assert value == pytest.approx(trade_off(100 - retain, 100 - forget), abs=1e-9)
    low, high = sorted((100 - forget, retain))
    assert low - 1e-9 <= value <= high + 1e-9
    assert value <= 2 * low + 1e-9


@steady
@given(percentages, percentages, percentages)
def test_trade_off_never_falls_when_less_is_known_or_more_is_kept(one, other, fixed):
    low, high = sorted((one, other))
    assert trade_off(high, fixed) <= trade_off(low, fixed) + 1e-9
    assert trade_off(fixed, low) <= trade_off(fixed, high) + 1e-9


def test_a_stream_is_averaged_before_its_trade_off():
    scores = score_stream(FORGET, RETAIN)
    assert scores.forget_average == pytest.approx(23.75, abs=1e-9)
    assert scores.forget_final == 0
    assert scores.retain_average == pytest.approx(623 / 12, abs=1e-9)
    assert scores.trade_off == pytest.approx(61.77340702210663, abs=1e-9)


def test_the_final_checkpoint_is_the_highest_whatever_the_order():
    scores = score_stream({1: 9.0, 2: 7.0, 3: 5.0}, {t: [50.0] for t in (1, 2, 3)}, (3, 1, 2))
    assert scores.forget_final == 5.0


def test_requests_that_are_no_checkpoints_do_not_enter():
    more = score_stream(FORGET | {0: 90, 7: 50}, RETAIN | {0: (83, 36, 80), 7: (1, 1, 1)})
    assert more == score_stream(FORGET, RETAIN)


def test_the_untouched_model_is_request_zero():
    scores = score_stream(FORGET | {0: 90}, RETAIN | {0: (83, 36, 80)}, checkpoints=(0,))
    assert scores.trade_off == pytest.approx(trade_off(90, 199 / 3), abs=1e-9)
    assert scores.trade_off == pytest.approx(17.4, abs=0.05)


BAD_STREAMS = [
    ({5: 1.0}, {5: [2.0]}, (5, 10), "no accuracies at checkpoint 10"),
    ({}, {}, (5,), "no accuracies at checkpoint 5"),
    ({5: 1.0, 10: 1.0}, {5: [2.0]}, (5,), "request 10 has a forget or a retain accuracy, not both"),
    ({5: 1.0}, {5: [2.0], 10: [1.0]}, (5,), "request 10 has a forget or a retain"),
    ({5: 1.0}, {5: [2.0]}, (), "one or more different"),
    ({5: 1.0}, {5: [2.0]}, (5, 5), "one or more different"),
    ({5: 1.0}, {5: []}, (5,), "same number of retain"),
    ({5: 1.0, 10: 1.0}, {5: [2.0], 10: [2.0, 3.0]}, (5, 10), "same number of retain"),
    (
        {5: 100.1},
        {5: [2.0]},
        (5,),
        r"forget accuracy at request 5 must be in \[0, 100\], not 100.1",
    ),
    ({5: math.nan}, {5: [2.0]}, (5,), "forget accuracy at request 5"),
    ({5: 1.0}, {5: [2.0, -0.1]}, (5,), "retain accuracy at request 5"),
    ({5: 1.0}, {5: [math.nan]}, (5,), "retain accuracy at request 5"),
]


@pytest.mark.parametrize(("forget", "retain", "checkpoints", "message"), BAD_STREAMS)
def test_incomplete_streams_are_refused(forget, retain, checkpoints, message):
    with pytest.raises(InputError, match=message):
        score_stream(forget, retain, checkpoints)


@pytest.mark.parametrize("bad", [-0.1, 100.1, math.nan, math.inf])
def test_values_that_are_no_percentages_are_refused(bad):
    with pytest.raises(InputError, match="forget accuracy"):
        trade_off(bad, 50)
    with pytest.raises(InputError, match="retain accuracy"):
        trade_off(50, bad)
