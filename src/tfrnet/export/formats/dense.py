"""dense: an ordinary model folder with the state folded into a copy of the weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from tfrnet.core.errors import InputError
from tfrnet.export.format import Format, Job
from tfrnet.export.parity import checked_difference, probe_logits
from tfrnet.models.forward import input_device

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Dense(Format):
    """Any tool that loads the base model loads it, at no extra cost."""

    name = "dense"
    about = "an ordinary model folder; mask, adapter or trained weights are folded in"
    library = "transformers"
    relation = "finetune"

    def write(self, job: Job, folder: Path) -> float:
        """Write weights, config and tokenizer, and load them again."""
        from transformers import AutoModelForCausalLM

        model = job.effect.model
        if any(parameter.is_meta for parameter in model.parameters()):
            raise InputError(
                "a model whose weights are offloaded cannot be exported; load it whole"
            )
        if not all(parameter.is_floating_point() for parameter in model.parameters()):
            raise InputError(
                "nothing can be folded into weights that are quantised; use --format ia3 for a "
                "mask and lora for a trained adapter, or begin with the model as it was before"
            )
        save_dense(model, job.tokenizer, folder, job.effect.folded())
        # A model whose own code runs already may run it once more.
        trusted = type(model).__module__.startswith("transformers_modules")
        exported = AutoModelForCausalLM.from_pretrained(
            folder, dtype=model.dtype, trust_remote_code=trusted
        )
        exported = exported.to(input_device(model)).eval()
        wanted, found = (probe_logits(each, job.tokenizer) for each in (model, exported))
        with job.effect.lifted():
            untouched = probe_logits(model, job.tokenizer)
        return checked_difference(wanted, found, untouched, model.dtype)

    def usage(self, job: Job, folder: str) -> str:
        """Return the commands of programs that serve a model folder."""
        return (
            "```python\n"
            "from transformers import AutoModelForCausalLM\n\n"
            f'model = AutoModelForCausalLM.from_pretrained("{folder}")\n'
            "```\n\n"
            "```sh\n"
            f"transformers serve {folder}\n"
            f"vllm serve {folder}\n"
            f"python -m sglang.launch_server --model-path {folder}\n"
            f"lm_eval --model hf --model_args pretrained={folder} --tasks openbookqa\n"
            "```"
        )


def save_dense(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    changed: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Write a model folder with the model's own weights, but for the changed ones."""
    model.save_pretrained(folder, state_dict=_plain(model.state_dict()) | dict(changed or {}))
    tokenizer.save_pretrained(folder)


def _plain(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return a model's own weights under their own names, without those of an adapter on it."""
    return {
        name.replace(".base_layer.", "."): tensor
        for name, tensor in weights.items()
        if ".lora_" not in name
    }


FORMAT = Dense()
