"""An exact digest of what a model computes, as a key for cached results."""

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
    """Return a SHA-256 of the model's class, its settings, its exact weights and the live mask.

    None if anything else takes part in the forward pass (a hook, an adapter, a replaced `forward`),
    since the digest could not cover it. Unlike a state's fingerprint, the digest changes with
    rounding.
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
        # Loads weights that accelerate has offloaded, one module at a time.
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
    # The original `forward`, which accelerate keeps under this name and calls.
    inner = module.__dict__.get("_old_forward")
    if inner is not None and getattr(inner, "__func__", None) is not type(module).forward:
        replaced = True
    hooked = bool(module._forward_hooks or module._forward_pre_hooks)
    return replaced or hooked or not type(module).__module__.startswith(_KNOWN_CODE)


def _moves_weights_only(forward: object) -> bool:
    """Tell whether a replaced `forward` is accelerate's, which does not change the output."""
    code = getattr(forward, "func", None)
    return isinstance(forward, partial) and str(getattr(code, "__module__", "")).startswith(
        "accelerate."
    )


def _add(digest: hashlib._Hash, name: str, tensor: torch.Tensor) -> None:
    digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    digest.update(flat.view(torch.uint8).numpy().data)
