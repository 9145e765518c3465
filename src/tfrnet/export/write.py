"""Writing an export: the model in its format, its model card and its facts, whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

from tfrnet.export.card import model_card
from tfrnet.export.format import Format, Job
from tfrnet.export.new_folder import new_folder

FACTS = "tfrnet.json"


def write_export(job: Job, form: Format, folder: Path) -> float:
    """Write a new folder, and return how far its logits are from the live model's."""
    with new_folder(folder) as partial:
        difference = form.write(job, partial)
        facts = job.origin.to_dict() | {"format": form.name} | form.facts(job)
        (partial / FACTS).write_text(json.dumps(facts, indent=1) + "\n")
        (partial / "README.md").write_text(
            model_card(job, form, difference, folder.name), encoding="utf-8"
        )
    return difference
