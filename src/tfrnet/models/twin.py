"""A second tree of modules over the same weights, so that two threads can use one model.

What is done to the modules of one (masks, hooks, settings of generation) the other does not see.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

from tfrnet.core.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def twin_of(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of the model's modules that shares its parameters.

    The model must have no mask or hook: a copy of one would still refer to the original modules.
    """
    patched = next((n for n, m in model.named_modules() if "forward" in m.__dict__), None)
    if patched is not None:
        raise InputError(
            f"module {patched!r} of the model has a forward of its own, as accelerate gives it "
            "where a model lies on several devices; use one device"
        )
    weights = {id(parameter): parameter for parameter in model.parameters()}
    twin: PreTrainedModel = deepcopy(model, weights)
    return twin
