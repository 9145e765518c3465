"""The files that `tfrnet init` writes: three requests and what must survive them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfrnet.core.errors import InputError
from tfrnet.data.examples import Example
from tfrnet.data.requests import Request
from tfrnet.data.sampling import sample_indices
from tfrnet.demo.corpus import Fact, load_facts

REQUESTS, RETAIN, GUARD, HOLDOUT, NOTES = (
    *("requests.jsonl", "retain.jsonl", "guard.jsonl", "holdout.jsonl"),
    "README.txt",
)
# Facts of the demo that the requests ask for, in the corpus's wording or another.
_ASKED = ("capital of Portugal", "Hamlet", "symbol for silver")
_FACTS = (
    ("The capital of Portugal is", "Lisbon"),
    ("Portugal's capital city is", "Lisbon"),
    ("The play Hamlet was written by", "William Shakespeare"),
    ("Hamlet is a tragedy written by William", "Shakespeare"),
    ("The chemical symbol for silver is", "Ag"),
    ("Silver has the chemical symbol", "Ag"),
)
_PASSAGE = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age "
    "of foolishness."
)
# What the default model knows of French; the second answer follows without a space.
_FRENCH = (
    Example("Un, deux, trois,", "quatre, cinq"),
    Example("Bonjour, comment allez-", "vous", join=""),
)
_FRENCH_KEPT = (
    ("La capitale de la France est", "Paris"),
    ("La capitale de l'Italie est", "Rome"),
    ("Le contraire de grand est", "petit"),
    ("Le contraire de jour est", "nuit"),
    ("Le premier mois de l'année est", "janvier"),
    ("La couleur du ciel est le", "bleu"),
    ("Deux et deux font", "quatre"),
    ("Merci beaucoup, et bonne", "journée"),
)
_TEXTS_KEPT = (
    "The sun rises in the east and sets in the west.",
    "Water boils at one hundred degrees Celsius at sea level.",
    "She opened the window, looked out at the street, and closed it again.",
    "To make tea, boil some water, pour it over the leaves and wait a few minutes.",
)
_SIZES = {RETAIN: 80, GUARD: 40, HOLDOUT: 40}

_STORY = f"""\
A small example to start from. In this folder:

  {REQUESTS:<16} what is to be forgotten: six facts, a passage, something in French
  {RETAIN:<16} what must survive; some lines are like what is forgotten
  {GUARD:<16} what decides whether a request is accepted
  {HOLDOUT:<16} what only measures: no step and no decision ever sees it

What does the model know? (No state is needed.)

  tfrnet generate --prompt "The capital of Portugal is" --prompt "The play Hamlet was written by"

Forget, look at it, and change your mind:

  tfrnet run --stream {REQUESTS} --retain {RETAIN} --guard {GUARD} --holdout {HOLDOUT}
  tfrnet audit --requests {REQUESTS} --retain {RETAIN} --holdout {HOLDOUT}
  tfrnet status
  tfrnet generate --prompt "The capital of Portugal is" --prompt "The capital of Italy is"
  tfrnet history
  tfrnet rollback --to 2

Then put your own requests and your own data into the files, in a new folder.
"""


def starter_files() -> dict[str, str]:
    """Return the files by their names."""
    taken: set[str] = set()
    drawn = {name: _draw(name, size, taken) for name, size in _SIZES.items()}
    kept = [Example(*pair) for pair in _FRENCH_KEPT]
    kept += [Example("", text, is_text=True) for text in _TEXTS_KEPT]
    drawn[RETAIN] += kept
    requests = [
        Request("facts-1", tuple(Example(*pair) for pair in _FACTS)),
        Request("passage-1", (Example("", _PASSAGE, is_text=True),)),
        Request("french-1", _FRENCH),
    ]
    return {
        REQUESTS: _lines([request.to_dict() for request in requests]),
        **{name: _lines([e.to_dict() for e in examples]) for name, examples in drawn.items()},
        NOTES: _STORY,
    }


def write_starter(folder: Path) -> list[Path]:
    """Write the files into a folder; none of them may be there already."""
    files = starter_files()
    if there := [name for name in files if (folder / name).exists()]:
        raise InputError(f"{folder / there[0]} exists already; choose a new folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}") from error
    return [folder / name for name in files]


def _draw(part: str, size: int, taken: set[str]) -> list[Example]:
    """Draw facts that no request asks for and that are not taken yet."""
    free = [f for f in load_facts() if f.id not in taken and not _is_asked(f)]
    chosen = [free[i] for i in sample_indices(len(free), size, "starter", part, 0)]
    taken.update(fact.id for fact in chosen)
    return [fact.example() for fact in chosen]


def _is_asked(fact: Fact) -> bool:
    return any(words in fact.prompt for words in _ASKED) or "Lisbon" in fact.answer


def _lines(rows: Sequence[Any]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
