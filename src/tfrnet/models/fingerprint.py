"""A fingerprint of a model's weights, so that a state is never applied to another model."""

from __future__ import annotations

import hashlib

import torch
from torch import nn

_CHUNK = 1 << 24


def fingerprint(model: nn.Module) -> str:
    """Return a hash over the model's class and every parameter's name, shape and values.

    Values are rounded to bfloat16 first, so that loading one checkpoint in float32 or in bfloat16
    gives one fingerprint. (Float16 rounds differently: such a load has its own.)
    """
    digest = hashlib.sha256(f"{type(model).__name__}\n".encode())
    for name, parameter in sorted(model.named_parameters()):
        checksum = _checksum(parameter.detach())
        digest.update(f"{name} {tuple(parameter.shape)} {checksum}\n".encode())
    return digest.hexdigest()


def _checksum(tensor: torch.Tensor) -> int:
    """Return a position-weighted sum of the value bits, exact on any device, at its full speed.

    Each position's weight is odd, so changing any one value changes the sum.
    """
    total = 0
    flat = tensor.reshape(-1)
    for start in range(0, flat.numel(), _CHUNK):
        bits = flat[start : start + _CHUNK].to(torch.bfloat16).view(torch.int16).long()
        weight = torch.arange(start, start + bits.numel(), device=bits.device)
        total += int((bits * (2 * weight + 1)).sum())
    return total % (1 << 64)
