import csv
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfrnet.core.errors import InputError
from tfrnet.evaluation.metrics.continual import (
    gain_over_best,
    mean_trade_off,
    normalised_forgetting,
    score_stream,
    trade_off,
)

steady = settings(derandomize=True, deadline=None)

TABLE = Path(__file__).resolve().parents[3].parent / "shared" / "paper" / "table1_main.csv"
STREAMS = ("arithmetic", "openbookqa", "boolq")

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


def test_mean_trade_off():
    values = [trade_off(forget, retain) for forget, retain, _ in VECTORS[:3]]
    assert mean_trade_off(values) == pytest.approx(59.38664963719657, abs=1e-9)


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
    with pytest.raises(InputError, match="Trade-off"):
        mean_trade_off([50, bad])
    with pytest.raises(InputError, match="mean Trade-off of B"):
        gain_over_best({"A": 50, "B": bad}, ["A"])
    for values in [(bad, 50, 25), (80, bad, 25), (80, 50, bad)]:
        with pytest.raises(InputError):
            normalised_forgetting(*values)


def test_a_mean_needs_a_stream():
    with pytest.raises(InputError):
        mean_trade_off([])


def test_gain_is_over_the_best_baseline_not_the_best_method():
    gains = gain_over_best({"ours": 60.0, "a": 40.0, "b": 51.0}, ["a", "b"])
    assert gains == {"ours": 9.0, "a": -11.0, "b": 0.0}


@pytest.mark.parametrize("baselines", [[], ["ours", "c"]])
def test_gain_needs_known_baselines(baselines):
    with pytest.raises(InputError, match="baseline"):
        gain_over_best({"ours": 60.0}, baselines)


def test_normalised_forgetting():
    assert normalised_forgetting(90, 90, 0) == 0
    assert normalised_forgetting(85, 25, 25) == 1
    assert normalised_forgetting(80, 65, 50) == pytest.approx(0.5, abs=1e-9)
    assert normalised_forgetting(80, 40, 50) > 1
    # Below chance to begin with, as OpenBookQA's 36 against the longest choice's 36.2.
    assert normalised_forgetting(36, 36.1, 36.2) == pytest.approx(0.5, abs=1e-9)
    with pytest.raises(InputError, match="began at chance"):
        normalised_forgetting(25, 20, 25)


@pytest.fixture(scope="module")
def table():
    if not TABLE.is_file():
        pytest.skip(f"{TABLE.name} is not there")
    with TABLE.open(newline="") as file:
        return {row["method"]: row for row in csv.DictReader(file)}


def trade_offs(table, unrounded):
    """Every stream's Trade-off, from the retain average as it was (k / 12) or as it is printed."""
    result = {}
    for method, row in table.items():
        for stream in STREAMS:
            retain = float(row[f"{stream}_r_avg"])
            if unrounded:
                retain = round(retain * 12) / 12
            result[method, stream] = trade_off(float(row[f"{stream}_f_avg"]), retain)
    return result


def differences(found, printed):
    """What differs from the printed numbers when rounded as they are."""
    assert found.keys() == printed.keys()
    return {key: round(found[key], 2) for key in found if round(found[key], 2) != printed[key]}


def printed_trade_offs(table):
    return {
        (method, stream): float(row[f"{stream}_tradeoff"])
        for method, row in table.items()
        for stream in STREAMS
    }


def means(values):
    methods = {method for method, _ in values}
    return {m: mean_trade_off([values[m, stream] for stream in STREAMS]) for m in methods}


def gains(values):
    return gain_over_best(values, values.keys() - {"TFR-Net"})


def test_table_1_trade_offs(table):
    printed = printed_trade_offs(table)
    assert len(printed) == 21
    assert differences(trade_offs(table, unrounded=True), printed) == {}
    # From the printed averages two are off by a hundredth.
    assert differences(trade_offs(table, unrounded=False), printed) == {
        ("LLM-Eraser", "openbookqa"): 58.34,
        ("TFR-Net", "arithmetic"): 61.78,
    }


def test_table_1_means(table):
    printed = {method: float(row["mean_tradeoff"]) for method, row in table.items()}
    assert len(printed) == 7
    assert differences(means(trade_offs(table, unrounded=True)), printed) == {}
    assert differences(means(printed_trade_offs(table)), printed) == {"TFR-Net": 59.38}


def test_table_1_gains(table):
    printed = {method: float(row["gain_vs_best"]) for method, row in table.items()}
    printed_means = {method: float(row["mean_tradeoff"]) for method, row in table.items()}
    # SimNPO's -9.19 is right in neither way; O3's and RMU's each in one of the two.
    assert printed["SimNPO"] == -9.19
    assert differences(gains(means(trade_offs(table, unrounded=True))), printed) == {
        "SimNPO": -9.18,
        "O3": -6.87,
    }
    assert differences(gains(printed_means), printed) == {"SimNPO": -9.18, "RMU": -12.20}
