"""ia3: the mask as an (IA)3 adapter, a few hundred kilobytes beside the untouched model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers.pytorch_utils import Conv1D

from tfrnet.core.errors import InputError
from tfrnet.core.tensors import tensors_digest
from tfrnet.export.adapter import adapter_usage, write_adapter
from tfrnet.export.format import Format, Job, Options
from tfrnet.masking.mask import ChannelMask
from tfrnet.unlearner import Unlearner


class IA3(Format):
    """(IA)3 scales what projections return, bias included, which is what the mask does."""

    name = "ia3"
    about = "the mask as a PEFT (IA)3 adapter of a few hundred KB; it can be taken off again"
    library = "peft"
    relation = "adapter"
    removable = True

    def refuse(self, method: type[Unlearner[Any]], options: Options) -> None:
        """Raise for a method without a mask."""
        if not method.config_class.has_mask:
            raise InputError(
                f"method {method.method} has no mask, so its states cannot become an (IA)3 "
                "adapter; use --format dense"
            )
        super().refuse(method, options)

    def write(self, job: Job, folder: Path) -> float:
        """Write the adapter: one vector for each masked projection, those of ones included."""
        from peft import IA3Config

        mask = _mask(job)
        index = mask.index
        modules = [mask.model.get_submodule(projection.name) for projection in index]
        config = IA3Config(
            task_type="CAUSAL_LM",
            target_modules=[projection.name for projection in index],
            # None, so that outputs are scaled; of a feedforward module PEFT scales the inputs.
            feedforward_modules=[],
            fan_in_fan_out=any(isinstance(module, Conv1D) for module in modules),
        )
        vectors = zip(index, index.split(mask.values), strict=True)
        tensors = {f"{part.name}.ia3_l": values.clone().unsqueeze(1) for part, values in vectors}
        return write_adapter(job, folder, config, tensors)

    def facts(self, job: Job) -> dict[str, Any]:
        """Return what an import checks."""
        mask = _mask(job)
        return {
            "mask_digest": tensors_digest({"mask": mask.values}),
            "channels": mask.layout(),
        }

    def usage(self, job: Job, folder: str) -> str:
        """Return how to load the adapter, and how to make a state of it again."""
        return adapter_usage(folder) + (
            "\n\nA state to go on from, checked by digest: "
            f"`tfrnet import {folder} --retain retain.jsonl --state new-state`."
        )


def _mask(job: Job) -> ChannelMask:
    assert isinstance(job.effect, ChannelMask)
    return job.effect


FORMAT = IA3()
