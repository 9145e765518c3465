"""PEFT adapters as models: merged into their base on first use, then an ordinary folder."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import safe_open

from tfrnet.core import strict_json
from tfrnet.core.errors import InputError
from tfrnet.models.cache import cache_folder, new_model
from tfrnet.models.place import ADAPTER_CONFIG
from tfrnet.models.tokenizer_check import is_made
from tfrnet.models.weights_check import refuse_other_weights

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

_WEIGHTS = "adapter_model.safetensors"
# What the files of a model end in: weights, settings, tokenizer and code.
_MODEL_FILES = (".safetensors", ".bin", ".json", ".model", ".txt", ".jinja", ".py")


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
    """Return a folder with the adapter merged into `base`, a folder or a hub id, in float32.

    It has the adapter's own tokenizer, if there is one, or else the base's.
    """
    try:
        key = _key(adapter, base)
    except OSError as error:
        raise InputError(f"adapter {adapter} cannot be merged into {base}: {error}") from error
    target = cache_folder() / "models" / f"{adapter.name}-{key[:16]}"
    if is_made(target):
        return target
    try:
        with new_model(target) as folder:
            _merge(adapter, base, trust_remote_code, folder)
    except InputError:
        raise
    except Exception as error:  # whatever files that anybody may have written lead to
        if not is_made(target):
            raise InputError(f"adapter {adapter} cannot be merged into {base}: {error}") from error
    return target


def _key(adapter: Path, base: str) -> str:
    """Return a digest of all that is merged; a hub id and its revision are in the config."""
    place = Path(base)
    # In our cache a folder is named after the digest of what it was made from.
    named = not place.is_dir() or place.parent == cache_folder() / "models"
    key = hashlib.sha256(f"{place.name if named else _digest(place)}\n".encode())
    key.update((adapter / ADAPTER_CONFIG).read_bytes())
    key.update((adapter / _WEIGHTS).read_bytes())
    if _has_tokenizer(adapter):
        key.update(_digest(adapter).encode())
    return key.hexdigest()


def _digest(folder: Path) -> str:
    """Return a digest of a model's files.

    All is read, as copies and images of containers keep sizes and may keep times. What is loaded
    next, the merged model in float32, is no smaller.
    """
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.suffix in _MODEL_FILES and file.is_file():
            with file.open("rb") as opened:
                content = hashlib.file_digest(opened, "sha256").hexdigest()
            digest.update(os.fsencode(file.name) + f" {content}\n".encode())
    return digest.hexdigest()


def _has_tokenizer(adapter: Path) -> bool:
    return (adapter / "tokenizer_config.json").is_file()


def _merge(adapter: Path, base: str, trust_remote_code: bool, folder: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    trust = {"trust_remote_code": trust_remote_code}
    source = trust | _revision(adapter, base)
    model, info = AutoModelForCausalLM.from_pretrained(
        base, dtype=torch.float32, output_loading_info=True, **source
    )
    refuse_other_weights(info)
    if _has_tokenizer(adapter):
        tokenizer = AutoTokenizer.from_pretrained(adapter, **trust)
        _make_room(model, max(len(tokenizer), _tokens(adapter, model)))
    else:
        tokenizer = AutoTokenizer.from_pretrained(base, **source)
        _make_room(model, _tokens(adapter, model))
    adapted = PeftModel.from_pretrained(model, str(adapter))
    _refuse_misfit(adapter, base, adapted)
    adapted.merge_and_unload().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _revision(adapter: Path, base: str) -> dict[str, str]:
    """Return the revision of a base from the hub, if the adapter names one."""
    named = strict_json.parse((adapter / ADAPTER_CONFIG).read_bytes()).get("revision")
    return {"revision": named} if named and not Path(base).is_dir() else {}


def _tokens(adapter: Path, model: PreTrainedModel) -> int:
    """Return for how many tokens an adapter has weights, or 0 if it has none of that kind."""
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    names = [f"base_model.model.{name}." for name, part in model.named_modules() if part in ends]
    with safe_open(adapter / _WEIGHTS, "pt") as file:
        # A low-rank factor among them has as many rows or fewer.
        weights = filter(lambda key: key.endswith("weight"), file.keys())
        found = [key for key in weights if key.startswith(tuple(names))]
        return max((file.get_slice(key).get_shape()[0] for key in found), default=0)


def _make_room(model: PreTrainedModel, tokens: int) -> None:
    """Add embeddings where an adapter was trained with more tokens than its base has."""
    if tokens <= model.get_input_embeddings().weight.shape[0]:
        return
    # New rows are drawn at random; those that the adapter does not replace are always the same.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model.resize_token_embeddings(tokens)


def _refuse_misfit(adapter: Path, base: str, adapted: PeftModel) -> None:
    """Raise unless every tensor of the adapter has its place in the base, and the reverse.

    PEFT ignores those that have none, and leaves places without a tensor as they are, so that an
    adapter of another model would change nothing.
    """
    from peft import get_peft_model_state_dict

    # Loaded once more, as the first time PEFT does not return what it found.
    found = adapted.load_adapter(str(adapter), adapted.active_adapter, torch_device="cpu")
    # PEFT may save embeddings by a second name, which it does not read.
    saved = get_peft_model_state_dict(adapted, save_embedding_layers=True)
    if foreign := set(found.unexpected_keys) - saved.keys():
        fault = f"it holds {min(foreign)}, for which the base has no place"
    elif lacking := _without_copies(adapted, found.missing_keys):
        fault = f"it lacks {min(lacking)}"
    else:
        return
    raise InputError(
        f"adapter {adapter} does not fit {base}: {fault}; name the model that it was trained on "
        f"in its {ADAPTER_CONFIG}"
    )


def _without_copies(adapted: PeftModel, missing: list[str]) -> list[str]:
    """Leave out names of tensors that were loaded by another name, as layers share them."""
    tensors = adapted.state_dict()
    loaded = {tensors[name].data_ptr() for name in tensors.keys() - set(missing)}
    return [name for name in missing if tensors[name].data_ptr() not in loaded]
