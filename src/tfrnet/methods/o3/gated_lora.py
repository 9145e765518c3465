"""The adapter with one weight per prompt: W h + w(x) (alpha / r) B A h."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tfrnet.core.errors import OVERFLOW_HINT, InputError
from tfrnet.core.tensors import State
from tfrnet.methods.o3.detector import Detector, DetectorSettings
from tfrnet.methods.o3.prompt_memory import Memory, prompt_key
from tfrnet.methods.o3.rows import Call, RowWeights
from tfrnet.models.forward import input_device
from tfrnet.models.layers import decoder_layers, hidden_after_each
from tfrnet.models.lora import ADAPTER, LoraOptions
from tfrnet.models.padding import padded, without_first
from tfrnet.models.prompts import known_prompts
from tfrnet.training.lora_effect import LoraEffect

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Prompt = tuple[int, ...]


class GatedLoraEffect(LoraEffect):
    """LoRA that is on for prompts similar to forgotten ones, and off for others.

    Every forward pass first finds the prompts of its rows: those given by `rows_answer`, else the
    rows themselves, else, with a KV cache, those of the previous pass. A new prompt costs one pass
    through half of the layers.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        options: LoraOptions,
        settings: DetectorSettings | None = None,
        batch_size: int = 8,
    ) -> None:
        self.settings = settings or DetectorSettings()
        self.batch_size = batch_size
        # The cost of the detector.
        self.detector_seconds = 0.0
        self._detector: Detector | None = None
        self._recent: list[tuple[Memory, Detector, dict[int, float]]] = []
        self._weights: dict[int, float] = {}
        self._last: torch.Tensor | None = None
        self._gated = True
        self._rows = RowWeights()
        self._handles: list[Any] = []
        super().__init__(model, options)
        self._rows.watch(layer.lora_B[ADAPTER] for layer in self.layers.values())
        self._handles.append(model.register_forward_pre_hook(self._weigh, with_kwargs=True))

    # The interface of every effect

    def show(self, state: State) -> None:
        """Apply a state to the model."""
        super().show(state)
        self._last = None
        memory = Memory.from_tensors(state.tensors())
        if memory is None:
            self._detector, self._weights = None, {}
            self._rows.set(None)
            return
        # A request shows its new state twice; the detector must not be fitted again.
        for known, detector, weights in self._recent:
            if known.features is memory.features:
                self._detector, self._weights = detector, weights
                return
        self._detector, self._weights = Detector(memory, self.settings), {}
        self._recent = [*self._recent[-1:], (memory, self._detector, self._weights)]

    def folded(self) -> dict[str, torch.Tensor]:
        """Raise: no ordinary weights are equivalent."""
        raise InputError(
            "a state of o3 cannot be folded into weights: the adapter's weight depends on the "
            "prompt"
        )

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Restore the original model within a `with` block; the detector does not run."""
        gated, self._gated = self._gated, False
        try:
            with super().lifted():
                yield
        finally:
            self._gated = gated

    def detach(self) -> None:
        """Remove the hooks and the adapter."""
        self._rows.release()
        for handle in self._handles:
            handle.remove()
        self._handles = []
        super().detach()

    # For O3

    @property
    def detector(self) -> Detector | None:
        """The detector of the current state, if there is one."""
        return self._detector

    @contextmanager
    def fully_on(self) -> Iterator[None]:
        """Use the full adapter on every row within a `with` block, as in training."""
        self._gated = False
        self._rows.set(None)
        try:
            yield
        finally:
            self._gated = True

    @torch.no_grad()
    def features(self, prompts: Sequence[Prompt]) -> torch.Tensor:
        """Return the base model's mean hidden state of each prompt, by layer. [m, L, d], float32.

        The states are those of the first half of the layers, without padding, and without the first
        token if the settings say so.
        """
        layers = decoder_layers(self.model)
        wanted = layers[: self._depth(len(layers))]
        device = input_device(self.model)
        found = []
        started = time.perf_counter()
        gated, self._gated = self._gated, False
        try:
            for start in range(0, len(prompts), self.batch_size):
                part = prompts[start : start + self.batch_size]
                ids, mask = (tensor.to(device) for tensor in padded(part))
                pooled = without_first(mask) if self.settings.skip_first else mask
                self._rows.set(torch.zeros(len(part)), ids.shape[1])
                states = hidden_after_each(self.model, wanted, ids, mask)
                found.append(torch.stack([_mean(hidden, pooled) for hidden in states], 1).cpu())
        finally:
            self._gated = gated
            self._rows.set(None)
        self.detector_seconds += time.perf_counter() - started
        features = torch.cat(found)
        if not bool(torch.isfinite(features).all()):
            raise InputError(
                "the model's hidden states are not finite, so o3 cannot tell prompts apart; "
                f"{OVERFLOW_HINT}"
            )
        return features

    def weights_of(self, prompts: Sequence[Prompt]) -> list[float]:
        """Return the adapter's weight for each prompt in the current state."""
        if self._detector is None:
            return [0.0] * len(prompts)
        keys = [prompt_key(prompt) for prompt in prompts]
        fresh = {k: p for k, p in zip(keys, prompts, strict=True) if k not in self._weights}
        if fresh:
            started = time.perf_counter()
            before = self.detector_seconds
            unknown = list(fresh.values())
            weights = self._detector.weights(unknown, self.features(unknown))
            self._weights.update(zip(fresh, weights, strict=True))
            self.detector_seconds = before + time.perf_counter() - started
        return [self._weights[key] for key in keys]

    def _weigh(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Forward pre-hook: set the weights of the rows."""
        if self._detector is None or not self._gated:
            return
        call = Call.of(args, kwargs)
        prompts = known_prompts()
        if prompts is None and not call.goes_on:
            prompts = call.rows()
        if prompts is not None:
            self._last = torch.tensor(self.weights_of([tuple(prompt) for prompt in prompts]))
        if self._last is None or len(self._last) != len(call.input_ids):
            raise InputError(
                f"o3 knows the prompts of {0 if self._last is None else len(self._last)} rows, but "
                f"the model is given {len(call.input_ids)}; run the prompts through the model first"
            )
        self._rows.set(self._last, call.input_ids.shape[1])

    def _depth(self, layers: int) -> int:
        return max(layers // 2, 1)


def _mean(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    weight = mask.to(hidden.device).unsqueeze(-1)
    # Not a product: padding may hold NaN.
    return hidden.float().masked_fill(weight == 0, 0.0).sum(1) / weight.sum(1)
