"""Datasets for the tests: the real ones where they are at hand, and made-up rows of each format."""

from __future__ import annotations

import gzip
import json
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
