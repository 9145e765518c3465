"""LUME: people, stories and real people, as items and as a stream of one request a person."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.datasets import SECRET, lume_rows, made_up_folder, needs_real, real_source, write_lines
from tfrnet.core.errors import InputError
from tfrnet.data.protocol import Sizes, make_split
from tfrnet.data.sources import Source
from tfrnet.data.split_files import read_split, write_split
from tfrnet.data.tasks import find_task

SMALL = Sizes(requests=4, request_size=3, forget_eval=10, heldout=10, retain=(20, 0), guard=(8, 0))


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return Source("folder", made_up_folder(tmp_path_factory.mktemp("data")))


def test_an_item_is_a_completion_or_a_question(source):
    told, asked, *_ = find_task("lume").load("forget", source)
    assert told.prompt == "Ann Kettle0 was born on January 0. Her phone"
    assert (told.answer, told.stratum) == ("is 555000.", "completion")
    assert asked.prompt == "Question: What is the birth date of Ann Kettle0?\nAnswer:"
    assert (asked.answer, asked.stratum) == ("1980-01-00", "question")
    assert told.group == asked.group == "person-0"
    assert asked.key == "lume/forget/1"


def test_an_answer_is_right_word_for_word_but_for_capitals(source):
    task = find_task("lume")
    email = task.load("forget", source)[4]
    assert task.is_right(" A0@ME.com ", email)
    assert not task.is_right("a0@me.com, I think", email)


def test_a_request_is_one_whole_person(source):
    split = make_split("lume", 3, source, SMALL)
    requests = split.requests()
    assert [request.id for request in requests] == [f"lume-3-0{n}" for n in (1, 2, 3, 4)]
    assert split.request_size == 6
    for start in range(0, 24, 6):
        person = split.forget[start : start + 6]
        assert len({item.group for item in person}) == 1
        assert Counter(item.stratum for item in person) == {"completion": 1, "question": 5}
    people = {name: {item.group for item in items} for name, items in split.parts().items()}
    assert not people["forget"] & people["retain/lume"]
    assert not people["heldout/lume"] & (people["retain/lume"] | people["guard/lume"])
    assert [len(split.parts()[name]) for name in ("retain/lume", "guard/lume", "heldout/lume")] == [
        *(20, 8, 10)
    ]
    assert make_split("lume", 3, source, SMALL) == split
    assert make_split("lume", 4, source, SMALL).forget != split.forget


def test_a_written_stream_is_found_again(source, tmp_path):
    split = make_split("lume", 0, source, SMALL)
    write_split(split, tmp_path / "s")
    assert read_split(tmp_path / "s", source) == split
    with pytest.raises(InputError, match="what lume keeps is all of one task"):
        write_split(split, tmp_path / "grouped", by_task=True)
    assert not (tmp_path / "grouped").exists()
    assert SECRET not in "".join(p.read_text() for p in (tmp_path / "s").iterdir())


def test_real_people_are_never_a_stream_and_their_items_quote_nothing(source):
    real = find_task("lume:real")
    items = real.load("retain", source)
    assert real.secret
    assert not find_task("lume:stories").secret
    for item in items:
        assert SECRET not in f"{item.key} {item.group} {item.fields}"
    with pytest.raises(InputError, match="unknown task 'lume:real'"):
        make_split("lume:real", 0, source, SMALL)


def test_the_measured_split_can_be_chosen(source):
    assert find_task("lume").evaluation == "retain"
    assert find_task("lume:people+forget").evaluation == "forget"
    with pytest.raises(InputError, match="LUME has no part 'x'; it has stories, people, real"):
        find_task("lume:x")
    with pytest.raises(InputError, match="LUME has no split 'test'"):
        find_task("lume:people+test")


def test_too_few_people_and_other_sources_are_refused(source, tmp_path):
    with pytest.raises(InputError, match="lume has 10 topics of 6 or more items"):
        make_split("lume", 0, source, replace(SMALL, requests=11))
    with pytest.raises(InputError, match="lume is read from a folder only; give --data-dir"):
        find_task("lume").load("forget", Source("hub"))
    with pytest.raises(InputError, match=r"has no lume/forget\.jsonl"):
        find_task("lume").load("forget", Source("folder", tmp_path))


def test_a_person_in_both_sets_is_refused(tmp_path):
    write_lines(tmp_path / "lume" / "forget.jsonl", lume_rows(6))
    write_lines(tmp_path / "lume" / "retain.jsonl", lume_rows(20, first=4))
    with pytest.raises(InputError, match="two sets are the same: forget and retain share 12"):
        make_split("lume", 0, Source("folder", tmp_path), SMALL)


def test_a_broken_row_is_named_without_its_words(tmp_path):
    rows = lume_rows(1)
    broken = next(row for row in rows if row["task"] == "Task3")
    del broken["output"]
    write_lines(tmp_path / "lume" / "retain.jsonl", rows)
    with pytest.raises(InputError) as caught:
        find_task("lume:real").load("retain", Source("folder", tmp_path))
    assert str(caught.value) == "lume:real/retain/8: field 'output' is missing or is not text"


@needs_real
def test_the_published_files():
    source = real_source()
    counts = {
        (part, split): len(find_task(f"lume:{part}").load(split, source))
        for part in ("people", "stories", "real")
        for split in ("forget", "retain")
    }
    assert list(counts.values()) == [1500, 1500, 486, 492, 746, 742]
    assert len(make_split("lume", 0, source).forget) == 120
