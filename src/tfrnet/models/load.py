"""Loading causal language models: from the hub, a folder, a GGUF file or an installed package."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tfrnet.core.errors import InputError
from tfrnet.models.adapters import base_of, merged_adapter
from tfrnet.models.bundled import BUNDLED, GEMMA
from tfrnet.models.gemma import gemma_folder
from tfrnet.models.gguf import converted_gguf
from tfrnet.models.place import ADAPTER_CONFIG, model_place
from tfrnet.models.shipped import BACKBONES
from tfrnet.models.weights_check import refuse_other_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# The models that have a name of ours.
_NAMED = (BUNDLED, GEMMA, *BACKBONES)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class LoadedModel(NamedTuple):
    """A model in eval mode and its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


def load_model(
    name: str,
    dtype: str = "auto",
    device: str = "auto",
    computes_on: str | None = None,
    trust_remote_code: bool = False,
) -> LoadedModel:
    """Load a causal LM and its tokenizer.

    Code in a model's folder is run only with `trust_remote_code`.

    `dtype` is float32, bfloat16, float16 or auto (float32 on a CPU, the checkpoint's own
    elsewhere); `device` is auto, a torch device, or a device map of accelerate such as balanced.
    `computes_on` is the device that the model will be moved to, if any.
    """
    placement = _placement(device)
    torch_dtype = _dtype(dtype, computes_on or placement["device_map"])
    folder = model_folder(name, trust_remote_code)
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    with _clear_errors(name):
        trust = {"trust_remote_code": trust_remote_code}
        config = AutoConfig.from_pretrained(folder, **trust)
        _refuse_other_kinds(config, name)
        _refuse_unknown_quantisation(config, name)
        tokenizer = AutoTokenizer.from_pretrained(folder, **trust)
        model, info = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch_dtype, output_loading_info=True, **trust, **placement
        )
        refuse_other_weights(info)
    return LoadedModel(model.eval(), tokenizer)


def model_folder(
    name: str, trust_remote_code: bool = False, adapters: tuple[Path, ...] = ()
) -> str:
    """Return what transformers can load: a folder or a hub id.

    GGUF files are converted, and adapters merged into their base, on first use. `adapters` are
    those that have `name` as their base.
    """
    if name == GEMMA:
        return str(gemma_folder())
    place = model_place(name)
    if place is None:
        return name
    if not place.is_dir():
        return str(converted_gguf(place))
    if not (place / ADAPTER_CONFIG).is_file():
        return str(place)
    if place.resolve() in adapters:
        raise InputError(
            f"adapter {name} names itself as its base model, directly or through another adapter"
        )
    base = model_folder(base_of(place), trust_remote_code, (*adapters, place.resolve()))
    return str(merged_adapter(place, base, trust_remote_code))


def use_tensor_cores(device: str) -> None:
    """Allow TF32 on GPUs: faster float32 products, with a mantissa of 10 bits.

    Not on a CPU, where reduced precision can be slower.
    """
    if device not in ("cpu", "meta") and torch.cuda.is_available():
        torch.set_float32_matmul_precision("high")


def _placement(device: str) -> dict[str, Any]:
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("balanced", "balanced_low_0", "sequential"):
        try:
            usable = torch.empty(1, device=device).device.type != "meta"
        except (RuntimeError, AssertionError, NotImplementedError):
            usable = False
        if not usable:
            raise InputError(
                f"torch cannot use device {device!r} here; examples: cpu, cuda, cuda:1"
            )
    return {"device_map": device}


def _dtype(name: str, device: str) -> torch.dtype | str:
    if name == "auto":
        return torch.float32 if device == "cpu" else "auto"
    if name not in DTYPES:
        raise InputError(f"unknown dtype {name!r}; choose from auto, {', '.join(DTYPES)}")
    return DTYPES[name]


def _refuse_other_kinds(config: Any, name: str) -> None:
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    architectures = config.architectures or []
    mapped = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    known = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)].__name__ if mapped else None
    causal = any(a == known or "CausalLM" in a or "LMHead" in a for a in architectures)
    if config.is_encoder_decoder or (architectures and not causal):
        kind = architectures[0] if architectures else config.model_type
        raise InputError(f"{name} is a {kind}, not a causal language model")


def _refuse_unknown_quantisation(config: Any, name: str) -> None:
    """Raise if the weights are packed in a way that would be ignored and read as plain numbers."""
    from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING

    packed = getattr(config, "quantization_config", None)
    if packed is None:
        return
    method = packed.get("quant_method") if isinstance(packed, dict) else packed.quant_method
    named = str(getattr(method, "value", method))
    # That of bitsandbytes is there once for 4 bits and once for 8.
    if not any(known in (named, f"{named}_4bit") for known in AUTO_QUANTIZER_MAPPING):
        raise InputError(
            f"model {name} has weights of an unknown quantisation ({method!r} in config.json); "
            "give the model as it was before it was quantised"
        )


@contextmanager
def _clear_errors(name: str) -> Iterator[None]:
    """Turn any error of a failed load into one line that says what to do."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # whatever a folder that anybody may have written leads to
        reason = " ".join(str(error).split()) or type(error).__name__
        if "trust_remote_code" in reason:
            raise InputError(
                f"model {name} brings code of its own, which was not run; if you trust whoever "
                "wrote it, allow it with --trust-remote-code"
            ) from error
        here = Path(name).exists() or name.endswith(".gguf")
        if not here and name not in _NAMED:
            offline = os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0")
            hint = "the hub is switched off by HF_HUB_OFFLINE" if offline else reason[:300]
            known = "" if "/" in name else f"; tfrnet knows {', '.join(_NAMED)}"
            raise InputError(
                f"model {name!r} is not a folder here, and the hub could not provide it "
                f"({hint}){known}"
            ) from error
        raise InputError(f"model {name} cannot be loaded: {reason[:300]}") from error
