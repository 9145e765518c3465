"""AdamW that small steps do not get lost in: it works on float32 whatever the model's type is."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn


class MasterAdamW:
    """Trains parameters in place, through float32 copies where they have fewer bits.

    In bfloat16 a step of 1e-5 is rounded away for five weights of six. The copies start from the
    values of the last request, not from what the model rounded them to.
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
                # A copy: what the state holds is never written over.
                parameter.data = start.to(parameter.dtype, copy=True)
                self._masters[name] = parameter
            else:
                self._masters[name] = nn.Parameter(start.float().clone())
        self._adam = torch.optim.AdamW(
            self._masters.values(), lr=learning_rate, weight_decay=weight_decay, eps=eps
        )
        # Last: without memory for the copies nothing is left to gather gradients.
        for parameter in self._parameters.values():
            parameter.requires_grad_(True)

    def step(self) -> None:
        """Take one step along the gradients, which are then gone."""
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
        """Return the trained values where they are, or in the host's memory."""
        trained = {name: master.detach() for name, master in self._masters.items()}
        return trained if in_place else {name: value.cpu() for name, value in trained.items()}

    def release(self) -> None:
        """Stop the parameters from gathering gradients."""
        for parameter in self._parameters.values():
            parameter.requires_grad_(False)
            parameter.grad = None
