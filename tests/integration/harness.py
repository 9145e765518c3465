"""Running lm-evaluation-harness, with its own task definitions, on items from local files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import lm_eval
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

from tfrnet.data.items import Item
from tfrnet.models.load import LoadedModel

# The harness's own definition of each task.
_DEFINITIONS = {
    "boolq": "super_glue/boolq/default.yaml",
    "openbookqa": "openbookqa/openbookqa.yaml",
    "arithmetic": "arithmetic/arithmetic_2da.yaml",
}


def _row(task: str, item: Item) -> dict[str, Any]:
    """Return an item as the harness's copy of the dataset has it."""
    if task == "boolq":
        label = int(item.answer == "yes")
        return {
            "passage": item.fields["passage"],
            "question": item.fields["question"],
            "label": label,
        }
    if task == "openbookqa":
        letters = list("ABCD")
        return {
            "question_stem": item.prompt,
            "choices": {"text": list(item.choices), "label": letters},
            "answerKey": letters[item.choices.index(item.answer)],
        }
    asked = item.fields["asked"]
    return {"context": f"\n\nQ: What is {asked}?\n\nA:", "completion": f" {item.answer}"}


def write_tasks(items: dict[str, Sequence[Item]], folder: Path) -> None:
    """Write items, and tasks that differ from the harness's own in where the rows come from."""
    for task, chosen in items.items():
        rows = folder / f"{task}.jsonl"
        rows.write_text("".join(json.dumps(_row(task, item)) + "\n" for item in chosen))
        changes = {
            "include": str(files("lm_eval") / "tasks" / _DEFINITIONS[task]),
            "task": f"local_{task}",
            "tag": None,
            "dataset_path": "json",
            "dataset_name": None,
            "dataset_kwargs": {
                "data_files": dict.fromkeys(("train", "validation", "test"), str(rows)),
                "cache_dir": str(folder / "cache"),
            },
        }
        # JSON is YAML too.
        (folder / f"{task}.yaml").write_text(json.dumps(changes))


def run_harness(
    loaded: LoadedModel, folder: Path, tasks: Sequence[str], batch_size: int, max_length: int
) -> dict[str, list[dict[str, Any]]]:
    """Return the harness's samples in order, by the name of our task."""
    model = HFLM(
        pretrained=loaded.model,
        tokenizer=loaded.tokenizer,
        batch_size=batch_size,
        max_length=max_length,
    )
    found = lm_eval.simple_evaluate(
        model=model,
        tasks=[f"local_{task}" for task in tasks],
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        bootstrap_iters=0,
    )
    return {
        task: sorted(found["samples"][f"local_{task}"], key=lambda sample: sample["doc_id"])
        for task in tasks
    }
