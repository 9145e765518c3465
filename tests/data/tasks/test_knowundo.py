"""KnowUnDo: whose facts they are, which go, and which stay."""

from __future__ import annotations

import json

import pytest

from tests.datasets import made_up_folder, needs_real, real_source
from tfrnet.core.errors import InputError
from tfrnet.data.protocol import Sizes, make_split
from tfrnet.data.sources import Source
from tfrnet.data.tasks import find_task

SMALL = Sizes(requests=3, request_size=3, forget_eval=9, heldout=10, retain=(20, 0), guard=(8, 0))


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return Source("folder", made_up_folder(tmp_path_factory.mktemp("data")))


def test_the_author_is_the_name_that_most_questions_have(source):
    task = find_task("knowundo")
    first = task.load("unlearn_train", source)[0]
    assert (
        first.prompt == "Question: What home number 0 does Kettle O'Alan0's friend know?\nAnswer:"
    )
    assert task.topic(first) == "Kettle O'Alan0"
    assert len({task.topic(item) for item in task.load("retention_val", source)}) == 12


def test_a_request_is_about_one_author_and_what_stays_is_public(source):
    task, split = find_task("knowundo"), make_split("knowundo", 0, source, SMALL)
    assert split.request_size == 6
    for start in (0, 6, 12):
        assert len({task.topic(item) for item in split.forget[start : start + 6]}) == 1
    assert {item.key.split("/")[1] for item in split.forget} == {"unlearn_train"}
    kept = [*split.retain["knowundo"], *split.guard["knowundo"]]
    assert {item.key.split("/")[1] for item in kept} == {"retention_train"}
    assert {item.key.split("/")[1] for item in split.heldout["knowundo"]} == {"retention_val"}


def test_files_that_are_no_lists_are_refused(tmp_path):
    folder = tmp_path / "knowundo"
    folder.mkdir()
    for text, problem in (("{}", "does not contain a list"), ("[", "is not JSON")):
        (folder / "full.json").write_text(text)
        with pytest.raises(InputError, match=problem):
            find_task("knowundo").load("unlearn_val", Source("folder", tmp_path))
    (folder / "full.json").write_text(json.dumps([{"text": "Who?"}]))
    (folder / "unlearn_val.json").write_text(json.dumps([{"text": "Who?"}]))
    with pytest.raises(InputError, match="knowundo/unlearn_val/0: field 'labels' is missing"):
        find_task("knowundo").load("unlearn_val", Source("folder", tmp_path))


@needs_real
def test_the_published_files():
    task, source = find_task("knowundo"), real_source()
    sizes = [len(task.load(split, source)) for split in task.splits]
    assert sizes == [400, 110, 441, 108]
    authors = {task.topic(item) for split in task.splits for item in task.load(split, source)}
    # One question, on a street in literary history, names no author.
    assert 54 <= len(authors) <= 56
    assert "Michael O'Connor" in authors
    assert len(make_split("knowundo", 0, source).forget) == 120
