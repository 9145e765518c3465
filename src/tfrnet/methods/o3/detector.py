"""Detects prompts similar to forgotten ones by the base model's hidden states."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.svm import OneClassSVM

from tfrnet.methods.o3.gate import Gate, soft_weight, tofu_gate
from tfrnet.methods.o3.nearness import Array, scores, scores_left_out
from tfrnet.methods.o3.prompt_memory import Memory, prompt_key

# Fewer prompts give no usable statistics.
_LEAST_TRAIN = 3
_LEAST_HELD_OUT = 1


@dataclass(frozen=True)
class DetectorSettings:
    """How a prompt's features are computed and turned into a weight."""

    gate: Gate = "tofu"
    zeta: float = 10.0
    nu: float = 0.1
    shrinkage: float = 0.1
    skip_first: bool = True


class Detector:
    """Gives each prompt a weight from its features. Fitted on first use, deterministically.

    A known prompt of the training part is scored leaving itself out: compared with itself it would
    be too near, and the weight falls off on both sides. With too few prompts for statistics, only
    exact matches count.
    """

    def __init__(self, memory: Memory, settings: DetectorSettings) -> None:
        self.settings = settings
        self._train = _wide(memory.features[memory.train])
        self._held_out = _wide(memory.features[~memory.train])
        self._known = set(memory.keys.tolist())
        keys = memory.keys[memory.train].tolist()
        self._place = {key: place for place, key in enumerate(keys)}

    def weights(self, prompts: list[tuple[int, ...]], features: Any) -> list[float]:
        """Return the adapter's weight for each prompt, given its features [m, L, d]."""
        if self.settings.gate == "always":
            return [1.0] * len(prompts)
        keys = [prompt_key(prompt) for prompt in prompts]
        if not self.has_statistics:
            return [float(key in self._known) for key in keys]
        d = self.distances(_wide(features))
        for row, key in enumerate(keys):
            if key in self._place:
                d[row] = self._train_distances[self._place[key]]
        w = soft_weight(d, *self.statistics, self.settings.zeta)
        values: list[float] = (tofu_gate(w) if self.settings.gate == "tofu" else w).tolist()
        return values

    @property
    def has_statistics(self) -> bool:
        """Whether both sides of the split have enough prompts."""
        return len(self._train) >= _LEAST_TRAIN and len(self._held_out) >= _LEAST_HELD_OUT

    @cached_property
    def statistics(self) -> tuple[float, float, float]:
        """mu1 of the training part, mu2 and sigma of the held-out part.

        If the held-out prompts do not vary, sigma is the training part's.
        """
        known, fresh = self._train_distances, self.distances(self._held_out)
        least = max(float(known.std()), 1e-9 * abs(float(known.mean())), np.finfo(float).tiny)
        sigma = max(float(fresh.std()), least)
        return float(known.mean()), float(fresh.mean()), sigma

    def distances(self, vectors: Array) -> Array:
        """Return the distances of vectors that are not in the training part. [m, L, d] -> [m]."""
        return self._project(scores(self._train, vectors, self.settings.shrinkage))

    @cached_property
    def _train_scores(self) -> Array:
        return scores_left_out(self._train, self.settings.shrinkage)

    @cached_property
    def _train_distances(self) -> Array:
        return self._project(self._train_scores)

    @cached_property
    def _direction(self) -> Array:
        """The normal of a linear one-class SVM, which turns the scores of all layers into one."""
        svm = OneClassSVM(kernel="linear", nu=self.settings.nu)
        return svm.fit(_scaled(self._train_scores)).coef_[0]  # type: ignore[no-any-return]

    def _project(self, values: Array) -> Array:
        return _scaled(values) @ self._direction  # type: ignore[no-any-return]


def _scaled(values: Array) -> Array:
    """Scale scores to about 1, for the solver's tolerance; the weight does not depend on it."""
    return values / 1000


def _wide(features: Any) -> Array:
    return np.asarray(features, dtype=np.float64)
