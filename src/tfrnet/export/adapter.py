"""PEFT adapters as export formats: written, put on the untouched model, and compared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file

from tfrnet.export.format import Job
from tfrnet.export.parity import checked_difference, probe_logits

if TYPE_CHECKING:
    from peft import PeftConfig

WEIGHTS = "adapter_model.safetensors"
# What PEFT puts before the names of a model's modules.
PREFIX = "base_model.model."


def write_adapter(
    job: Job, folder: Path, config: PeftConfig, tensors: Mapping[str, torch.Tensor]
) -> float:
    """Write an adapter folder, load it again, and return how far its logits are from the state's.

    `tensors` are named as PEFT does, without its prefix.
    """
    config.base_model_name_or_path = job.base_path
    config.revision = job.origin.base_revision
    config.inference_mode = True
    config.save_pretrained(str(folder))
    kept = {f"{PREFIX}{name}": value.detach().cpu().contiguous() for name, value in tensors.items()}
    save_file(kept, folder / WEIGHTS, {"format": "pt"})
    return _difference(job, folder)


def _difference(job: Job, folder: Path) -> float:
    from peft import PeftModel

    model = job.effect.model
    wanted = probe_logits(model, job.tokenizer)
    with job.effect.lifted():
        adapted = PeftModel.from_pretrained(model, str(folder))
        try:
            found = probe_logits(adapted, job.tokenizer)
        finally:
            adapted.unload()
    return checked_difference(wanted, found, model.dtype)


def adapter_usage(folder: str) -> str:
    """Return how an adapter folder is loaded."""
    return (
        "```python\n"
        "from transformers import AutoModelForCausalLM\n\n"
        f'model = AutoModelForCausalLM.from_pretrained("{folder}")  # base and adapter\n'
        "```\n\n"
        "or, on a model that is loaded, `peft.PeftModel.from_pretrained(model, "
        f'"{folder}")`.'
    )
