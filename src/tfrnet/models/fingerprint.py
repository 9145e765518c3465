"""A fingerprint of a model, so that a state is never applied to another one."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch
from accelerate.utils import align_module_device

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_CHUNK = 1 << 24
# What changes a model's computation without changing its weights. Not the whole config: that also
# holds names, versions and defaults that differ between releases of transformers.
_SETTINGS = (
    "hidden_act",
    "activation_function",
    "num_attention_heads",
    "num_key_value_heads",
    "rms_norm_eps",
    "layer_norm_epsilon",
    "layer_norm_eps",
    "rope_parameters",
    "sliding_window",
)


def fingerprint(model: PreTrainedModel) -> str:
    """Return a hash over the model's class, its main settings and all values of its parameters.

    Values are rounded to bfloat16 first, so that loading one checkpoint in float32 or in bfloat16
    gives one fingerprint. (Float16 rounds differently: such a load has its own.)
    """
    config = model.config.get_text_config()
    lines = [f"{name} {getattr(config, name, None)}" for name in _SETTINGS]
    wanted = {name for name, _ in model.named_parameters()}
    for prefix, module in model.named_modules():
        # Weights that accelerate has moved away are brought back, one module at a time.
        with align_module_device(module):
            for name, parameter in module.named_parameters(prefix, recurse=False):
                if name in wanted:
                    lines.append(f"{name} {tuple(parameter.shape)} {_checksum(parameter.detach())}")
    text = "\n".join([type(model).__name__, *sorted(lines)])
    return hashlib.sha256(text.encode()).hexdigest()


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
