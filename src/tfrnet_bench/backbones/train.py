"""Training a backbone by its recipe, and saving the adapter or merged model with the log."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tfrnet.core.errors import InputError
from tfrnet.data.examples import Encoded
from tfrnet.data.forgotten import Forgotten
from tfrnet.data.sources import Source
from tfrnet.export.new_folder import new_folder
from tfrnet.models.finetune import EpochRecord, FinetuneOptions, finetune
from tfrnet.models.load import LoadedModel
from tfrnet_bench.backbones.card import CARD, LOG, card
from tfrnet_bench.backbones.recipes import Recipe

if TYPE_CHECKING:
    from peft import PeftModel


@dataclass(frozen=True)
class Prepared:
    """A trained adapter on its base model, and the log of its training."""

    model: PeftModel
    log: dict[str, Any]
    without: Forgotten | None = None


def train(
    recipe: Recipe,
    loaded: LoadedModel,
    source: Source,
    options: FinetuneOptions,
    report: Callable[[EpochRecord], None] | None = None,
    limit: int | None = None,
    without: Forgotten | None = None,
) -> Prepared:
    """Train a recipe's adapter, on its first `limit` examples only if one is given.

    `without` makes it an oracle: a model that never saw those items.
    """
    if without and not recipe.streams:
        raise InputError(
            f"--without cannot be used with {recipe.name}, of which no stream forgets a part"
        )
    rows = recipe.encoded(source, loaded.tokenizer, without, limit)
    model, epochs = finetune(loaded.model, rows, options, report)
    # Not the folder where this machine happens to keep the base model.
    model.peft_config["default"].base_model_name_or_path = recipe.base
    log: dict[str, Any] = {
        "recipe": recipe.name,
        "about": recipe.about,
        "base": recipe.base,
        "options": options.to_dict(),
        "data": {
            "examples": len(rows),
            "tokens": sum(len(row.ids) for row in rows),
            "cut": sum(row.cut > 0 for row in rows),
            "sha256": digest(rows),
        },
        "epochs": [asdict(epoch) for epoch in epochs],
        "device": _device(loaded),
        "dtype": str(loaded.model.dtype).removeprefix("torch."),
        "versions": _versions(),
    }
    if limit is not None:
        log["data"]["limit"] = limit
    if without:
        log["without"] = {
            "seeds": list(without.seeds),
            "streams": list(without.streams),
            "items": len(without.digests),
            "answers": len(without.answers),
        }
    return Prepared(model, log, without)


def save_adapter(prepared: Prepared, folder: Path) -> None:
    """Write the adapter in half precision and its log; the folder is created atomically."""
    with torch.no_grad():
        for parameter in prepared.model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.half()
    _write(folder, prepared, card(prepared.log), prepared.model.save_pretrained)


def save_merged(prepared: Prepared, tokenizer: Any, folder: Path) -> None:
    """Write the base model with the adapter merged into its weights."""

    def save(place: Path) -> None:
        prepared.model.merge_and_unload().save_pretrained(place)
        tokenizer.save_pretrained(place)

    _write(folder, prepared, card(prepared.log, merged=True), save)


def _write(folder: Path, prepared: Prepared, text: str, save: Callable[[Path], Any]) -> None:
    with new_folder(folder) as partial:
        save(partial)
        # In place of peft's card, which has blanks to fill in.
        (partial / CARD).write_text(text, encoding="utf-8")
        (partial / LOG).write_text(json.dumps(prepared.log, indent=1) + "\n")
        if prepared.without:
            prepared.without.write(partial)


def digest(rows: Sequence[Encoded]) -> str:
    """Return the SHA-256 of all tokens and of where the answers begin."""
    text = json.dumps([[list(row.ids), row.answer_start] for row in rows])
    return hashlib.sha256(text.encode()).hexdigest()


def _device(loaded: LoadedModel) -> str:
    device = next(loaded.model.parameters()).device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("torch", "transformers", "peft")}
