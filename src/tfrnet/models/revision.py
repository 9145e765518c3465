"""The revision of a model from the hub."""

from __future__ import annotations

from pathlib import Path


def hub_revision(name: str) -> str | None:
    """Return the commit of a hub model that was loaded by its name, or None for any other model.

    It is read off the hub's cache: newer versions of transformers no longer keep it.
    """
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    if Path(name).expanduser().exists():
        return None
    try:
        found = try_to_load_from_cache(name, "config.json")
    except HFValidationError:  # not a name that the hub could have
        return None
    return Path(found).parent.name if isinstance(found, str) else None
