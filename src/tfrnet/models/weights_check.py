"""Whether the weights that were read are those of the model that was made."""

from __future__ import annotations

from typing import Any


def refuse_other_weights(info: dict[str, Any]) -> None:
    """Raise if the weights are not those of the model that the config describes.

    `info` is what transformers says of a load; it would give weights that lack random numbers.
    """
    if info["missing_keys"]:
        raise ValueError(f"its weights lack {min(info['missing_keys'])}")
    if info["unexpected_keys"]:
        raise ValueError(
            f"its weights hold {min(info['unexpected_keys'])}, for which the model of its "
            "config.json has no place"
        )
