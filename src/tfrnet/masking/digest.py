"""An exact digest of what a model computes, for results that are kept."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from typing import TYPE_CHECKING

import torch
from accelerate.utils import align_module_device
from torch import nn

from tfrnet.masking.mask import live_masks, replaced_forward

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_KNOWN_CODE = ("torch.", "transformers.", "transformers_modules.")


def model_digest(model: PreTrainedModel) -> str | None:
    """Return a SHA-256 over code, settings, every bit of the weights, and the live mask.

    None if something else takes part in the forward pass (a hook, an adapter, a replaced
    `forward`): then nobody can say by looking at the model what it computes. The fingerprint of a
    state is another thing: it forgives rounding, this does not.
    """
    masks = dict(live_masks(model))
    if any(_is_opaque(module, name in masks) for name, module in model.named_modules()):
        return None
    digest = hashlib.sha256()
    settings = json.dumps(model.config.to_dict(), sort_keys=True, default=str)
    attention = getattr(model.config, "_attn_implementation", None)
    digest.update(f"{type(model).__name__} {attention} {settings}".encode())
    training = [name for name, module in model.named_modules() if module.training]
    digest.update(json.dumps(training).encode())
    for prefix, module in model.named_modules():
        # Weights that accelerate has moved away are brought back, one module at a time.
        with align_module_device(module):
            for kind in (module.named_parameters, module.named_buffers):
                for name, tensor in kind(prefix, recurse=False):
                    _add(digest, name, tensor)
    for name, values in sorted(masks.items()):
        _add(digest, f"mask of {name}", values)
    return digest.hexdigest()


def _is_opaque(module: nn.Module, is_masked: bool) -> bool:
    forward = module.__dict__.get("forward")
    if is_masked:
        forward = replaced_forward(module)
    replaced = forward is not None and not _moves_weights_only(forward)
    # What accelerate calls in the end; it keeps it under this name.
    inner = module.__dict__.get("_old_forward")
    if inner is not None and getattr(inner, "__func__", None) is not type(module).forward:
        replaced = True
    hooked = bool(module._forward_hooks or module._forward_pre_hooks)
    return replaced or hooked or not type(module).__module__.startswith(_KNOWN_CODE)


def _moves_weights_only(forward: object) -> bool:
    """Tell whether a replaced `forward` is accelerate's, which changes no number."""
    code = getattr(forward, "func", None)
    return isinstance(forward, partial) and str(getattr(code, "__module__", "")).startswith(
        "accelerate."
    )


def _add(digest: hashlib._Hash, name: str, tensor: torch.Tensor) -> None:
    digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    digest.update(flat.view(torch.uint8).numpy().data)
