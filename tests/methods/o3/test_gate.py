"""The weights of the fact sheet."""

import numpy as np
import pytest

from tfrnet.methods.o3.gate import raw_weight, soft_weight, tofu_gate

_D = np.array([0, 0.25, 0.5, 1, 2])
_NORMALS = (-0.2, 0.2, 0.5)


def test_weights_of_the_table():
    raw = [1, 0.644232, 0.355010, 0.062997, 0.000165]
    assert raw_weight(_D, *_NORMALS) == pytest.approx(raw, abs=1e-6)
    w = soft_weight(_D, *_NORMALS, 10)
    assert w == pytest.approx([0.999665, 0.988368, 0.824928, 0.202615, 0.119376], abs=1e-6)
    assert tofu_gate(w) == pytest.approx([1, 1, 1, 0.410527, 0], abs=1e-5)
    assert tofu_gate(w)[-1] == 0


def test_the_weight_falls_on_both_sides():
    assert soft_weight(-_D, *_NORMALS, 10) == pytest.approx(soft_weight(_D, *_NORMALS, 10))


def test_the_gate_at_its_edges():
    assert tofu_gate([0.2, 0.32, 0.31999]).tolist() == [0, 1, pytest.approx(1.0239, abs=1e-4)]
