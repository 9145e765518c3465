"""PEFT adapters as models: merged into their base on first use, then an ordinary folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch

from tfrnet.core import strict_json
from tfrnet.core.errors import InputError
from tfrnet.models.cache import cache_folder, new_model
from tfrnet.models.place import ADAPTER_CONFIG
from tfrnet.models.tokenizer_check import is_made

_WEIGHTS = "adapter_model.safetensors"


def base_of(adapter: Path) -> str:
    """Return the name of the model that an adapter was trained on."""
    try:
        base = strict_json.parse((adapter / ADAPTER_CONFIG).read_bytes())["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{adapter / ADAPTER_CONFIG} cannot be read: {error}") from error
    if not isinstance(base, str) or not (adapter / _WEIGHTS).is_file():
        raise InputError(f"adapter {adapter} names no base model or has no {_WEIGHTS}")
    return base


def merged_adapter(adapter: Path, base: str, trust_remote_code: bool = False) -> Path:
    """Return a folder with the adapter merged into `base`, a folder or a hub id, in float32."""
    # A converted base's folder is named after the digest of the file that it was made from.
    key = hashlib.sha256(f"{Path(base).name}\n".encode())
    key.update((adapter / ADAPTER_CONFIG).read_bytes())
    key.update((adapter / _WEIGHTS).read_bytes())
    target = cache_folder() / "models" / f"{adapter.name}-{key.hexdigest()[:16]}"
    if is_made(target):
        return target
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        with new_model(target) as folder:
            model = AutoModelForCausalLM.from_pretrained(
                base, dtype=torch.float32, trust_remote_code=trust_remote_code
            )
            merged = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
            merged.save_pretrained(folder)
            tokenizer = AutoTokenizer.from_pretrained(base, trust_remote_code=trust_remote_code)
            tokenizer.save_pretrained(folder)
    except InputError:
        raise
    except Exception as error:  # whatever files that anybody may have written lead to
        if not is_made(target):
            raise InputError(f"adapter {adapter} cannot be merged into {base}: {error}") from error
    return target
