"""A fingerprint of a model, so that a state is never applied to another one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from accelerate.utils import align_module_device

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_CHUNK = 1 << 24
# Integers of so many bytes, to see a value's bits.
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# Words, numbers, spaces, other scripts: texts that tokenizers split differently.
_PROBES = (
    "The capital of France is Paris, isn't it?",
    "  12 plus 30.75 = 42.75\n\tdef f(x): return x**2",
    "naïve Übermut, Привет, 漢字, 🙂",
)
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


# More of the kind, of fewer models. A line only where a model has them, so that the facts of others
# stay what they were.
_RARE_SETTINGS = (
    "hidden_activation",
    "layer_types",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "query_pre_attn_scalar",
    "embedding_multiplier",
    "residual_multiplier",
    "attention_multiplier",
    "logits_scaling",
    "num_experts_per_tok",
    "norm_topk_prob",
    "routed_scaling_factor",
    "use_parallel_residual",
)


def fingerprint(model: PreTrainedModel) -> str:
    """Return a hash of the model's class, its main settings and all parameter values.

    Values are rounded to bfloat16 first, so a checkpoint has the same fingerprint in float32 and
    in bfloat16. (Float16 rounds differently and gives another one.)
    """
    config = model.config.get_text_config()
    lines = [f"{name} {getattr(config, name, None)}" for name in _SETTINGS]
    lines += _checksums(model, lambda values: values.to(torch.bfloat16))
    return _hash([type(model).__name__, *sorted(lines)])


@dataclass(frozen=True)
class ModelFacts:
    """What a model is beyond its rounded weights; a state is bound to it."""

    architecture: str
    layers: int
    dtype: str
    weights: str  # a hash over every bit, and over settings that few models have

    @classmethod
    def of(cls, model: PreTrainedModel) -> ModelFacts:
        """Look at a model."""
        return cls(
            architecture=type(model).__name__,
            layers=model.config.get_text_config().num_hidden_layers,
            dtype=str(model.dtype).removeprefix("torch."),
            weights=_hash(
                sorted(
                    [
                        *_checksums(model, lambda values: values),
                        *_buffers(model),
                        *_rare_settings(model),
                    ]
                )
            ),
        )


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return a hash over a tokenizer's vocabulary, its special tokens and how it splits texts.

    Not over its files, which hold names and versions too.
    """
    special = (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id)
    facts = [sorted(tokenizer.get_vocab().items()), special]
    facts += [tokenizer(text)["input_ids"] for text in _PROBES]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _checksums(
    model: PreTrainedModel, rounded: Callable[[torch.Tensor], torch.Tensor]
) -> Iterator[str]:
    """Yield a line for every parameter, with a checksum over its values."""
    wanted = {name for name, _ in model.named_parameters()}
    for prefix, module in model.named_modules():
        # Loads weights that accelerate has offloaded, one module at a time.
        with align_module_device(module):
            for name, parameter in module.named_parameters(prefix, recurse=False):
                if name in wanted:
                    checksum = _checksum(parameter.detach(), rounded)
                    yield f"{name} {tuple(parameter.shape)} {checksum}"


def _buffers(model: PreTrainedModel) -> Iterator[str]:
    """Yield a line for every buffer that a checkpoint holds, as for a parameter."""
    saved = model.state_dict().keys()
    for name, buffer in model.named_buffers():
        if name in saved and not buffer.is_meta:
            yield f"{name} {tuple(buffer.shape)} {_checksum(buffer, lambda values: values)}"


def _rare_settings(model: PreTrainedModel) -> Iterator[str]:
    config = model.config.get_text_config()
    for name in _RARE_SETTINGS:
        if (value := getattr(config, name, None)) is not None:
            yield f"setting {name} {value}"


def _hash(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _checksum(tensor: torch.Tensor, rounded: Callable[[torch.Tensor], torch.Tensor]) -> int:
    """Return a position-weighted sum of the value bits, exact and fast on any device.

    Each position's weight is odd, so changing any one value changes the sum.
    """
    total = 0
    flat = tensor.reshape(-1)
    for start in range(0, flat.numel(), _CHUNK):
        values = rounded(flat[start : start + _CHUNK])
        bits = values.view(_BITS[values.element_size()]).long()
        weight = torch.arange(start, start + bits.numel(), device=bits.device)
        total += int((bits * (2 * weight + 1)).sum())
    return total % (1 << 64)
