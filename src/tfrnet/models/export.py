"""Export: what a state made of a model as an ordinary model folder, checked before it is done."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tfrnet.core.effect import Effect
from tfrnet.core.errors import CheckFailedError, InputError
from tfrnet.models.forward import input_device

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Largest ||difference|| / ||logits||; the fold rounds each weight once, the mask each activation.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}
_PROBES = (
    "The capital of France is",
    "Question: What is 12 plus 30?\nAnswer:",
    "Once upon a time there was a small village by the sea, and in it lived",
)


def export_dense(
    effect: Effect,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    provenance: dict[str, Any],
) -> float:
    """Write the model with a state folded in, and return how far its logits are from the state's.

    The folder appears only when the check has passed.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists already and is not empty; choose a new folder")
    model = effect.model
    if any(parameter.is_meta for parameter in model.parameters()):
        raise InputError("a model whose weights are offloaded cannot be exported; load it whole")
    weights = _plain(model.state_dict()) | effect.folded()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}") from error
    try:
        model.save_pretrained(partial, state_dict=weights)
        tokenizer.save_pretrained(partial)
        (partial / "tfrnet.json").write_text(json.dumps(provenance, indent=1) + "\n")
        difference = _logit_difference(model, tokenizer, partial)
        tolerance = TOLERANCE.get(model.dtype, 1e-4)
        if not difference <= tolerance:
            raise CheckFailedError(
                f"the exported logits differ from the live model's by {difference:.2g} "
                f"(relative), over the tolerance {tolerance:.0e}; nothing was exported"
            )
        partial.chmod(0o755)
        if folder.exists():
            folder.rmdir()
        partial.rename(folder)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return difference


def _plain(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return a model's own weights under their own names, without those of an adapter on it."""
    return {
        name.replace(".base_layer.", "."): tensor
        for name, tensor in weights.items()
        if ".lora_" not in name
    }


@torch.no_grad()
def _logit_difference(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path
) -> float:
    from transformers import AutoModelForCausalLM

    device = input_device(model)
    exported = AutoModelForCausalLM.from_pretrained(folder, dtype=model.dtype)
    exported = exported.to(device).eval()
    differences = []
    for probe in _PROBES:
        ids = torch.tensor([tokenizer(probe)["input_ids"]], device=device)
        wanted = model(ids).logits.double()
        found = exported(ids).logits.double()
        differences.append((found - wanted).norm() / wanted.norm())
    return float(torch.stack(differences).max())
