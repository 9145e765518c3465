"""AdamW with float32 master weights, so that small steps are not rounded away."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn


class MasterAdamW:
    """Trains parameters in place, with float32 copies of those in lower precision.

    In bfloat16 a step of 1e-5 is rounded away for five of six weights. The copies start from the
    float32 values of the last request, not from the model's rounded ones.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        values: Mapping[str, torch.Tensor],
        learning_rate: float,
        weight_decay: float,
        eps: float = 1e-8,
    ) -> None:
        self._parameters = dict(parameters)
        self._masters: dict[str, nn.Parameter] = {}
        for name, parameter in self._parameters.items():
            start = values.get(name, parameter.data).to(parameter.device)
            if parameter.dtype in (torch.float32, torch.float64):
                # A copy: the state's tensors are never changed.
                parameter.data = start.to(parameter.dtype, copy=True)
                self._masters[name] = parameter
            else:
                # Written to in every step, and perhaps the very values that the model is to get
                # back.
                parameter.data = parameter.data.clone()
                self._masters[name] = nn.Parameter(start.float().clone())
        self._adam = torch.optim.AdamW(
            self._masters.values(), lr=learning_rate, weight_decay=weight_decay, eps=eps
        )
        # Last, so that running out of memory above leaves no parameter with gradients on.
        for parameter in self._parameters.values():
            parameter.requires_grad_(True)

    def step(self) -> None:
        """Take one step and clear the gradients."""
        for name, parameter in self._parameters.items():
            master = self._masters[name]
            if master is not parameter:
                master.grad = None if parameter.grad is None else parameter.grad.float()
                parameter.grad = None
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)
        for name, parameter in self._parameters.items():
            if self._masters[name] is not parameter:
                parameter.data.copy_(self._masters[name].data)

    def values(self, in_place: bool = False) -> dict[str, torch.Tensor]:
        """Return the trained values on their device, or in host memory."""
        trained = {name: master.detach() for name, master in self._masters.items()}
        return trained if in_place else {name: value.cpu() for name, value in trained.items()}

    def release(self) -> None:
        """Turn gradients of the parameters off."""
        for parameter in self._parameters.values():
            parameter.requires_grad_(False)
            parameter.grad = None
