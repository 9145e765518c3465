"""Local folders and the hub; the hub is a folder that the real `datasets` package reads."""

import sys

import pytest

import datasets
from tests.datasets import boolq_rows, made_up_folder, openbookqa_rows, write_lines
from tfrnet.core.errors import InputError
from tfrnet.data import sources
from tfrnet.data.sources import HubFile, Source, read_rows
from tfrnet.data.tasks import find_task

HUB = HubFile("aps/super_glue", "boolq", "validation")


def test_a_folder_is_read_plain_or_gzipped(tmp_path):
    rows = boolq_rows(3)
    write_lines(tmp_path / "boolq" / "a.jsonl", rows)
    write_lines(tmp_path / "boolq" / "b.jsonl.gz", rows)
    source = Source("folder", tmp_path)
    assert read_rows("boolq/a.jsonl", HUB, source) == rows
    assert read_rows("boolq/b.jsonl", HUB, source) == rows


def test_the_environment_names_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TFRNET_DATA", str(tmp_path))
    assert Source().chosen() == "folder"
    assert Source("hub").chosen() == "hub"
    assert Source("auto", tmp_path / "..").folder == tmp_path / ".."


def test_without_a_folder_arithmetic_is_generated_and_the_rest_comes_from_the_hub(monkeypatch):
    monkeypatch.delenv("TFRNET_DATA", raising=False)
    assert Source().chosen(can_generate=True) == "generated"
    assert Source().chosen() == "hub"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda f: Source("web"), "unknown source 'web'; choose from auto, folder, hub, generated"),
        (lambda f: Source("hub", f), "source hub reads nothing from the data folder"),
        (lambda f: Source("generated", f), "leave out --source or --data-dir"),
        (lambda f: Source("folder"), "use --data-dir or set TFRNET_DATA"),
        (lambda f: Source("auto", f / "none"), "none does not exist or is not a folder"),
        (lambda f: read_rows("boolq/x.jsonl", HUB, Source("auto", f)), "neither boolq/x.jsonl nor"),
        (
            lambda f: read_rows("boolq/x.jsonl", HUB, Source("generated")),
            "boolq is needed and cannot be gener",
        ),
    ],
)
def test_what_is_missing_is_said(make, message, tmp_path, monkeypatch):
    monkeypatch.delenv("TFRNET_DATA", raising=False)
    with pytest.raises(InputError, match=message):
        make(tmp_path)


def test_a_hub_that_cannot_be_reached_says_what_to_do(monkeypatch):
    def fail(*args, **kwargs):
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    message = r"\(no network\); give a folder with boolq/dev.jsonl by --data-dir"
    with pytest.raises(InputError, match=message):
        find_task("boolq").load("validation", Source("hub"))


def test_a_missing_datasets_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(sources.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"pip install 'tfrnet\[hub\]'"):
        find_task("boolq").load("validation", Source("hub"))


def test_a_damaged_gzip_file_is_named(tmp_path):
    path = tmp_path / "boolq" / "dev.jsonl.gz"
    path.parent.mkdir()
    path.write_bytes(b"\x1f\x8b broken")
    with pytest.raises(InputError, match=r"dev\.jsonl\.gz is not a complete gzip file"):
        find_task("boolq").load("validation", Source("folder", tmp_path))


def test_rows_of_the_hub_give_the_items_of_the_files(tmp_path, monkeypatch):
    """The hub's columns differ from the release's; the items must not."""
    files = made_up_folder(tmp_path / "files")
    hub = tmp_path / "hub"
    super_glue = [
        {
            "passage": f"{row['title']} -- {row['passage']}",
            "question": row["question"],
            "label": int(row["answer"]),
            "idx": number,
        }
        for number, row in enumerate(boolq_rows(80, offset=236))
    ]
    write_lines(hub / "boolq.jsonl", super_glue)
    main = [
        {
            "id": row["id"],
            "question_stem": row["question"]["stem"],
            "choices": {
                "text": [choice["text"] for choice in row["question"]["choices"]],
                "label": [choice["label"] for choice in row["question"]["choices"]],
            },
            "answerKey": row["answerKey"],
        }
        for row in openbookqa_rows(40, offset=1000)
    ]
    write_lines(hub / "openbookqa.jsonl", main)
    asked = []
    real = datasets.load_dataset

    def from_folder(path, name=None, data_files=None, split=None):
        asked.append((path, name, split))
        file = {"aps/super_glue": "boolq", "allenai/openbookqa": "openbookqa"}[path]
        kwargs = {"data_files": {split: str(hub / f"{file}.jsonl")}, "split": split}
        return real("json", cache_dir=str(tmp_path / "cache"), **kwargs)

    monkeypatch.setattr(datasets, "load_dataset", from_folder)
    for name, split in (("boolq", "validation"), ("openbookqa", "test")):
        task = find_task(name)
        expected = task.load(split, Source("folder", files))
        assert task.load(split, Source("hub")) == expected
    assert asked == [
        ("aps/super_glue", "boolq", "validation"),
        ("allenai/openbookqa", "main", "test"),
    ]
