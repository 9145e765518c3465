"""LUME's and KnowUnDo's published scores, by hand and against the standard library."""

import math
from statistics import harmonic_mean

import pytest

from tfrnet.core.errors import InputError
from tfrnet.evaluation.metrics import knowundo
from tfrnet.evaluation.metrics.lume import (
    LumeScores,
    knowledge,
    regurgitation,
    task_aggregate,
)


def test_regurgitation_is_recall_and_knowledge_is_all_or_nothing():
    # Of six words four are there in this order: number, is, 555, and 12.
    assert regurgitation("her number is 555 12 today", "the number is 555 12") == pytest.approx(
        4 / 6
    )
    assert regurgitation("Security Number", "") == 0
    assert knowledge(" 1984-12-31", "1984-12-31\n") == 1
    assert knowledge("Madera", "madera") == 1
    assert knowledge("Madera", "Madera.") == 0


def test_the_aggregate_of_three_tasks_has_twelve_terms():
    forget = {
        "Task1": LumeScores(0.2, 0.1),
        "Task2": LumeScores(0.4, 0.3),
        "Task3": LumeScores(0, 0.5),
    }
    retain = {
        "Task1": LumeScores(0.9, 0.8),
        "Task2": LumeScores(0.7, 0.6),
        "Task3": LumeScores(1, 0.5),
    }
    terms = [0.8, 0.9, 0.6, 0.7, 1.0, 0.5, 0.9, 0.8, 0.7, 0.6, 1.0, 0.5]
    assert task_aggregate(forget, retain) == pytest.approx(harmonic_mean(terms))
    # 12 / (1.25 + 1.1111 + 1.6667 + 1.4286 + 1 + 2 + 1.1111 + 1.25 + 1.4286 + 1.6667 + 1 + 2)
    assert task_aggregate(forget, retain) == pytest.approx(12 / 16.9127, abs=1e-5)
    assert task_aggregate({"a": LumeScores(1, 0)}, {"a": LumeScores(1, 1)}) == 0
    with pytest.raises(InputError, match="the same tasks"):
        task_aggregate(forget, {"Task1": LumeScores(1, 1)})


def test_success_is_the_mean_share_of_tokens():
    shares = [1.0, 0.5, 0.0]
    assert knowundo.retention_success(shares) == pytest.approx(50)
    assert knowundo.unlearn_success(shares) == pytest.approx(50)
    assert knowundo.unlearn_success([0.25]) == 75
    # Of items, not of tokens: the mean loss is 1.5.
    assert knowundo.perplexity([1.0, 2.0]) == pytest.approx(math.exp(1.5))
    with pytest.raises(InputError):
        knowundo.perplexity([])
