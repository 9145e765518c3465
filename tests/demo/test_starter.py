"""The example folder: files that can be used as they are, and that do not overlap."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tfrnet.core.errors import InputError
from tfrnet.data.requests import read_examples, read_requests, refuse_overlap
from tfrnet.demo.starter import GUARD, HOLDOUT, NOTES, REQUESTS, RETAIN, write_starter


def test_the_files_are_read_and_do_not_overlap(tmp_path: Path) -> None:
    written = write_starter(tmp_path / "new")
    assert sorted(path.name for path in written) == sorted(
        [REQUESTS, RETAIN, GUARD, HOLDOUT, NOTES]
    )
    requests = read_requests(tmp_path / "new" / REQUESTS)
    kept = {name: read_examples(tmp_path / "new" / name) for name in (RETAIN, GUARD, HOLDOUT)}
    assert [request.id for request in requests] == ["facts-1", "passage-1", "french-1"]
    assert len(requests[0].examples) == 6
    assert len(kept[RETAIN]) >= 50
    for name, examples in kept.items():
        refuse_overlap(requests, examples, name)
        assert len({example.joined for example in examples}) == len(examples)
    for one, other in itertools.combinations(kept.values(), 2):
        assert not {e.joined for e in one} & {e.joined for e in other}


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / RETAIN).write_text("mine\n")
    with pytest.raises(InputError, match=r"retain\.jsonl exists already"):
        write_starter(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [RETAIN]
    assert (tmp_path / RETAIN).read_text() == "mine\n"
