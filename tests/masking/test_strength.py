"""How strong a mask is, in figures and in words."""

from __future__ import annotations

import numpy as np

from tfrnet.masking.strength import MaskStrength

MASK = np.array([1.0, 1.0, 0.995, 0.98, 0.85, 0.4, 0.1, 0.0], dtype="float32")


def test_the_figures_of_a_mask() -> None:
    strength = MaskStrength.of(MASK, dormant_threshold=0.1)
    change = 1 - MASK.astype(float)
    assert strength.channels == 8
    assert strength.mean_change == np.mean(change)
    assert strength.largest_change == 1
    counts = (
        strength.changed_1_percent,
        strength.changed_10_percent,
        strength.changed_50_percent,
        strength.dormant,
    )
    assert counts == (5, 4, 3, 2)  # a mask at the threshold is dormant


def test_an_untouched_mask_is_not_changed() -> None:
    strength = MaskStrength.of(np.ones(5, dtype="float32"), dormant_threshold=0.1)
    assert strength.change() == "changed by 0.0 % on average, 0.0 % at most"
    assert strength.counts().startswith("0 of 5 channels by more than 1 %")


def test_a_small_change_does_not_read_as_none() -> None:
    strength = MaskStrength.of(np.full(3, 0.99996), dormant_threshold=0.1)
    assert strength.change() == "changed by 0.004 % on average, 0.004 % at most"
    half = MaskStrength.of(MASK, dormant_threshold=0.1)
    assert half.change() == "changed by 33.4 % on average, 100.0 % at most"


def test_the_record_gives_the_same_strength_again() -> None:
    strength = MaskStrength.of(MASK, dormant_threshold=0.1)
    assert MaskStrength.recorded(strength.to_dict()) == strength
    assert MaskStrength.recorded(None) is None
