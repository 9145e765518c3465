"""Where cells and trials run: data, devices, sizes of passes, number of processes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tfrnet.data.sources import Source
from tfrnet.models.load import LoadedModel, load_model, use_tensor_cores


@dataclass(frozen=True)
class Machine:
    """The data, devices and batch sizes of a run; none changes a result by more than rounding.

    `trust_remote_code` lets code run that a model's folder brings along.
    """

    source: Source
    device: str = "auto"
    batch_size: int = 8
    eval_batch_size: int = 16
    workers: int | None = None
    trust_remote_code: bool = False

    @property
    def processes(self) -> int:
        """The number of processes: as asked for, or one per device."""
        return self.workers or len(self.devices)

    @property
    def devices(self) -> list[str]:
        """The devices of the processes: all GPUs, unless one or the CPU was named."""
        if self.device in ("auto", "cuda") and torch.cuda.is_available():
            return [f"cuda:{number}" for number in range(torch.cuda.device_count())]
        return [self.device]

    def load(self, model: str, dtype: str) -> LoadedModel:
        """Load a model on the device."""
        return load_model(model, dtype, self.device, trust_remote_code=self.trust_remote_code)


def prepare_process(device: str) -> None:
    """Select the device and number format of a process."""
    if device.startswith("cuda:"):
        torch.cuda.set_device(device)
    use_tensor_cores(device)
