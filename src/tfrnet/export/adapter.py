"""PEFT adapters as export formats: written, put on the untouched model, and compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file

from tfrnet.export.format import Job
from tfrnet.export.parity import checked_difference, probe_logits
from tfrnet.models.lora import MARKS, put_module

if TYPE_CHECKING:
    from peft import PeftConfig
    from transformers import PreTrainedModel

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
    with job.effect.lifted(), _put_back(model):
        untouched = probe_logits(model, job.tokenizer)
        adapted = PeftModel.from_pretrained(model, str(folder))
        found = probe_logits(adapted, job.tokenizer)
    return checked_difference(wanted, found, untouched, model.dtype)


@contextmanager
def _put_back(model: PreTrainedModel) -> Iterator[None]:
    """Restore a model's own modules at the end of a `with` block, whatever PEFT did to it.

    PEFT's own `unload` refuses quantised models, and cannot help if loading failed half-way.
    """
    facts = vars(model)
    marks = {name: facts[name] for name in MARKS if name in facts}
    modules = [(name, module, module.training) for name, module in model.named_modules()]
    wanted = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        yield
    finally:
        # Parents come first, so a child is looked up in its own parent.
        for name, module, training in modules:
            if model.get_submodule(name) is not module:
                put_module(model, name, module)
            module.training = training
        for parameter, trained in wanted:
            parameter.requires_grad_(trained)
        for name in MARKS:
            facts.pop(name, None)
        facts.update(marks)


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
