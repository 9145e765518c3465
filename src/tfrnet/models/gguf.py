"""GGUF files, converted once to an ordinary model folder in the cache."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tfrnet.core.errors import InputError
from tfrnet.models.cache import cache_folder, new_model
from tfrnet.models.tokenizer_check import is_made, reads_letters
from tfrnet.models.weights_check import refuse_other_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def converted_gguf(path: Path) -> Path:
    """Return a folder with the file's weights in float32, created on first use."""
    target = converted_folder(path.stem, _file_digest(path))
    if is_made(target):
        return target
    if importlib.util.find_spec("gguf") is None:
        raise InputError("reading GGUF files needs the gguf package: pip install 'tfrnet[gguf]'")
    try:
        with new_model(target) as folder:
            _convert(path, folder)
    except InputError:
        raise
    except Exception as error:  # whatever a file that anybody may have written leads to
        if not is_made(target):
            reason = " ".join(str(error).split())[:300]
            raise InputError(f"model file {path} cannot be converted: {reason}") from error
    return target


def converted_folder(stem: str, digest: str) -> Path:
    """Return where a file of this name and SHA-256 is converted to."""
    return cache_folder() / "models" / f"{stem}-{digest[:16]}"


def unpacked_gguf(path: Path) -> PreTrainedModel:
    """Return the model of a file, its weights in float32."""
    import transformers

    source = _source(path)
    if hasattr(transformers, "GgufConfig"):
        # Newer versions of transformers keep the weights packed unless told otherwise.
        source["quantization_config"] = transformers.GgufConfig(dequantize=True)
    model: PreTrainedModel
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, dtype=torch.float32, output_loading_info=True, **source
    )
    refuse_other_weights(info)
    # The weights are no longer quantised; a leftover quantisation config would prevent saving them.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    return model


def _source(path: Path) -> dict[str, Any]:
    return {"gguf_file": path.name, "trust_remote_code": False}


def _convert(path: Path, folder: Path) -> None:
    from gguf import GGUFReader
    from transformers import AutoTokenizer

    reader = GGUFReader(str(path))
    _refuse_layers(path, reader)
    tokenizer = AutoTokenizer.from_pretrained(path.parent, **_source(path))
    model = unpacked_gguf(path)
    _set_special_tokens(reader, tokenizer, model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if reads_letters(AutoTokenizer.from_pretrained(folder)):
        raise InputError(
            f"model file {path} cannot be converted: its tokenizer would split words into letters, "
            "as transformers before 5.18 does with Gemma's; install a newer transformers"
        )


def _refuse_layers(path: Path, reader: Any) -> None:
    """Raise if a file claims more layers than it has tensors, which would keep others busy."""
    for name, field in reader.fields.items():
        if name.endswith(".block_count") and (claimed := _number(field)) > len(reader.tensors):
            raise InputError(
                f"model file {path} cannot be converted: it claims {claimed} layers and has "
                f"{len(reader.tensors)} tensors"
            )


def _number(field: Any) -> int:
    return int(field.parts[field.data[0]][0])


def _set_special_tokens(reader: Any, tokenizer: Any, model: Any) -> None:
    """Take BOS, EOS and padding from the file: versions of transformers read them differently."""
    for part, name in (("bos", "bos"), ("eos", "eos"), ("padding", "pad")):
        field = reader.fields.get(f"tokenizer.ggml.{part}_token_id")
        if field is None:
            continue
        number = _number(field)
        setattr(tokenizer, f"{name}_token", tokenizer.convert_ids_to_tokens(number))
        setattr(model.config, f"{name}_token_id", number)
        setattr(model.generation_config, f"{name}_token_id", number)


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
