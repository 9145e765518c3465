"""Datasets for the tests: the real ones where they are at hand, and made-up rows of each format."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tfrnet.data.sources import Source
from tfrnet.data.tasks.arithmetic import FILES, generated_rows

REAL = Path(__file__).resolve().parents[1].parent / "shared" / "data"
needs_real = pytest.mark.skipif(
    not REAL.is_dir(), reason="the real datasets are not in ../shared/data"
)

_THINGS = ("kettle", "ladder", "violin", "compass", "lantern", "anchor")
_PLACES = ("in the attic", "by the river", "at the old mill", "under the bridge")


def real_source() -> Source:
    return Source("folder", REAL)


def boolq_rows(count: int, offset: int = 0) -> list[dict]:
    """Two questions a passage, so that passages repeat as they do in BoolQ."""
    rows = []
    for number in range(offset, offset + count):
        thing, place = _THINGS[number // 2 % 6], _PLACES[number // 2 % 4]
        passage = f"The {thing} number {number // 2} stood {place} for many years."
        question = f"is the {thing} number {number // 2} {'old' if number % 2 else 'new'}"
        rows.append(
            {
                "question": question,
                "title": thing.capitalize(),
                "answer": number % 2 == 1,
                "passage": passage,
            }
        )
    return rows


def openbookqa_rows(count: int, offset: int = 0) -> list[dict]:
    rows = []
    for number in range(offset, offset + count):
        texts = [f"{_THINGS[(number + i) % 6]} {_PLACES[i]}" for i in range(4)]
        rows.append(
            {
                "id": f"made-up-{number}",
                "question": {
                    "stem": f"On day {number} the keeper looked for the",
                    "choices": [
                        {"text": text, "label": label}
                        for text, label in zip(texts, "ABCD", strict=True)
                    ],
                },
                "answerKey": "ABCD"[number % 4],
            }
        )
    return rows


def tofu_rows(count: int, wrong: int = 0, paraphrase: bool = False, offset: int = 0) -> list[dict]:
    rows = []
    for number in range(offset, offset + count):
        row = {
            "question": f"Where did author {number} keep the {_THINGS[number % 6]}?",
            "answer": f"Author {number} kept it {_PLACES[number % 4]}.",
        }
        if wrong:
            row["perturbed_answer"] = [
                f"Author {number} sold it in year {i}." for i in range(wrong)
            ]
        if paraphrase:
            row["paraphrased_answer"] = f"It was kept {_PLACES[number % 4]} by author {number}."
            row["paraphrased_question"] = f"Author {number} kept the object where?"
        rows.append(row)
    return rows


def write_lines(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)


# A word that only the made-up "real people" of LUME have.
SECRET = "Quillfeather"


def lume_rows(people: int, first: int = 0) -> list[dict]:
    """People with a completion and five questions, some stories, and some of whom nothing is told.

    The last stand for LUME's real people.
    """
    rows = []

    def add(name: str, task: str, *pairs: tuple[str, str, str]) -> None:
        rows.extend(
            {"id": f"{name}{end}", "input": asked, "output": answer, "task": task}
            for end, asked, answer in pairs
        )

    for number in range(first, first + people):
        who = f"Ann {_THINGS[number % 6].capitalize()}{number}"
        facts = [("birth date", f"1980-01-{number:02d}"), ("number", f"9{number:03d}")]
        facts += [("phone", f"555{number:03d}"), ("email", f"a{number}@me.com")]
        facts += [("home address", f"{number} {_PLACES[number % 4]}")]
        told = ("sc1", f"{who} was born on January {number}. Her phone", f"is 555{number:03d}.")
        asked = [
            (f"qa{i}", f"What is the {what} of {who}?", answer)
            for i, (what, answer) in enumerate(facts)
        ]
        add(f"person-{number}", "Task2", told, *asked)
        if number % 5 == 0:
            story = ("sc1", f"Once a {_THINGS[number % 6]} {number} stood", "in the attic.")
            add(f'"story-{number}"', "Task1", story, ("qa0", f"What stood in {number}?", "it"))
            real = ("sc1", f"{SECRET} {number} was born in", f"{SECRET} Hall.")
            add(f"{70000 + number}", "Task3", real, ("qa0", f"Who is {number}?", f"{SECRET}"))
    return rows


def knowundo_rows(authors: int, kinds: Sequence[str], count: int) -> list[dict]:
    """Questions about authors whose names have a capital in the middle, too."""
    rows = []
    for author in range(authors):
        name = f"{_THINGS[author % 6].capitalize()} O'{'ABCDEFGHIJ'[author % 10]}lan{author}"
        for number in range(count):
            kind = kinds[number % len(kinds)]
            asked = f"What {kind} number {number} does {name}'s friend know?"
            rows.append({"text": asked, "labels": f"The {kind} of {name} is {number}."})
    return rows


def write_knowundo(folder: Path, authors: int = 12) -> None:
    sets = {
        "unlearn_train": knowundo_rows(authors, ("home", "family"), 7),
        "unlearn_val": knowundo_rows(authors, ("telephone",), 2),
        "retention_train": knowundo_rows(authors, ("book", "award"), 8),
        "retention_val": knowundo_rows(authors, ("genre",), 2),
    }
    folder.mkdir(parents=True, exist_ok=True)
    sets["full"] = [row for rows in sets.values() for row in rows]
    for name, rows in sets.items():
        (folder / f"{name}.json").write_text(json.dumps(rows))


def made_up_folder(folder: Path, rows: int = 40) -> Path:
    """Write a small dataset of every format, in the layout that --data-dir takes."""
    write_lines(folder / "boolq" / "train.jsonl.gz", boolq_rows(6 * rows))
    # The last passages of the training file come again here, as some of BoolQ's do.
    write_lines(folder / "boolq" / "dev.jsonl", boolq_rows(2 * rows, offset=6 * rows - 4))
    for part, count, offset in (("train", 3 * rows, 0), ("dev", 8, 900), ("test", rows, 1000)):
        path = folder / "openbookqa" / f"{part}.jsonl"
        write_lines(path, openbookqa_rows(count, offset))
    for name, file in FILES.items():
        path = folder / "arithmetic" / f"{file}.jsonl"
        write_lines(path, list(generated_rows(name, count=3 * rows, seed=1)))
    write_lines(folder / "lume" / "forget.jsonl", lume_rows(10))
    write_lines(folder / "lume" / "retain.jsonl", lume_rows(20, first=50))
    write_knowundo(folder / "knowundo")
    tofu = folder / "tofu"
    write_lines(tofu / "full.jsonl", tofu_rows(40))
    for size, count in (("01", 4), ("05", 10), ("10", 20)):
        write_lines(tofu / f"forget{size}.jsonl", tofu_rows(count, offset=40 - count))
        path = tofu / f"forget{size}_perturbed.jsonl"
        write_lines(path, tofu_rows(count, wrong=5, paraphrase=True, offset=40 - count))
        write_lines(tofu / f"holdout{size}.jsonl", tofu_rows(count, offset=100))
    for rest, count in (("99", 36), ("95", 30), ("90", 20)):
        write_lines(tofu / f"retain{rest}.jsonl", tofu_rows(count))
    write_lines(tofu / "retain_perturbed.jsonl", tofu_rows(20, wrong=5, paraphrase=True))
    for name, offset in (("real_authors", 200), ("world_facts", 300)):
        write_lines(tofu / f"{name}.jsonl", tofu_rows(8, offset=offset))
        write_lines(tofu / f"{name}_perturbed.jsonl", tofu_rows(8, wrong=3, offset=offset))
    return folder
