import hashlib
import json
from dataclasses import replace

import pytest

from tests.datasets import made_up_folder, needs_real, real_source, write_lines
from tests.example_package.tfrnet_example.parity import Parity
from tfrnet.core.errors import InputError
from tfrnet.data.items import refuse_shared_groups
from tfrnet.data.protocol import STREAMS, Sizes, make_split
from tfrnet.data.requests import read_examples, read_requests, refuse_overlap
from tfrnet.data.sources import Source
from tfrnet.data.split_files import read_split, to_manifest, write_split

SMALL = Sizes(requests=3, request_size=4, forget_eval=10, heldout=10, retain=(10, 6), guard=(5, 4))


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return Source("folder", made_up_folder(tmp_path_factory.mktemp("data")))


@pytest.mark.parametrize("task", STREAMS)
def test_parts_have_their_sizes_and_share_no_group(task, source):
    split = make_split(task, 0, source, SMALL)
    sizes = {name: len(items) for name, items in split.parts().items()}
    assert sizes["forget"] == 12
    assert sizes["forget_eval"] == 10
    for name in STREAMS:
        own = name == task
        assert sizes[f"retain/{name}"] == (10 if own else 6)
        assert sizes[f"guard/{name}"] == (5 if own else 4)
        assert sizes[f"heldout/{name}"] == 10
    owners = {}
    for name, items in split.parts().items():
        if name != "forget_eval":
            for item in items:
                assert owners.setdefault(item.group, name) == name
    assert set(split.forget_eval) <= set(split.forget)
    assert all(item.key.startswith(task) for item in split.forget)


def test_held_out_items_share_nothing_with_any_training_item(source):
    from tfrnet.data.tasks import find_task

    split = make_split("boolq", 3, source, SMALL)
    for name, items in split.heldout.items():
        task = find_task(name)
        training = {item.group for item in task.load(task.training, source)}
        assert training.isdisjoint(item.group for item in items)


def test_held_out_items_are_those_of_the_seed_whatever_is_forgotten(source):
    splits = [make_split(task, 1, source, SMALL) for task in STREAMS]
    assert splits[0].heldout == splits[1].heldout == splits[2].heldout
    assert make_split("boolq", 2, source, SMALL).heldout != splits[0].heldout


def test_another_seed_forgets_other_items_in_another_order(source):
    first, again, other = (make_split("openbookqa", seed, source, SMALL) for seed in (0, 0, 1))
    assert first == again
    assert first.forget != other.forget


def test_arithmetic_is_mixed_equally(source):
    split = make_split("arithmetic", 0, source, SMALL)
    strata = [item.stratum for item in split.forget]
    assert [strata.count(name) for name in ("2da", "2ds", "3da", "3ds")] == [3, 3, 3, 3]


def test_the_stream_holds_the_forgotten_items_in_order(source):
    split = make_split("openbookqa", 0, source, SMALL)
    requests = split.requests()
    assert [request.id for request in requests] == [f"openbookqa-0-0{n}" for n in (1, 2, 3)]
    examples = [example for request in requests for example in request.examples]
    assert examples == [item.example() for item in split.forget]
    refuse_overlap(requests, split.retain_examples(), "retain data")
    refuse_overlap(requests, split.guard_examples(), "guard data")


def test_lines_to_keep_may_name_their_task_as_their_group(source, tmp_path):
    split = make_split("boolq", 0, source, SMALL)
    write_split(split, tmp_path / "s", by_task=True)
    write_split(split, tmp_path / "plain")
    assert "group" not in (tmp_path / "plain" / "guard.jsonl").read_text()
    for name, parts in (("retain", split.retain), ("guard", split.guard)):
        groups = [example.group for example in read_examples(tmp_path / "s" / f"{name}.jsonl")]
        assert groups == [task for task, items in parts.items() for _ in items]
        assert len(set(groups)) == 3


def test_a_written_split_is_found_again_and_holds_no_words(source, tmp_path):
    split = make_split("boolq", 0, source, SMALL)
    write_split(split, tmp_path / "s")
    assert read_split(tmp_path / "s", source) == split
    assert read_split(tmp_path / "s" / "split.json", source) == split
    assert read_requests(tmp_path / "s" / "requests.jsonl") == split.requests()
    assert read_examples(tmp_path / "s" / "retain.jsonl") == split.retain_examples()
    assert read_examples(tmp_path / "s" / "guard.jsonl") == split.guard_examples()
    manifest = (tmp_path / "s" / "split.json").read_text()
    assert "stood" not in manifest
    with pytest.raises(InputError, match="exists already and is not empty"):
        write_split(split, tmp_path / "s")


def test_a_changed_dataset_is_noticed(source, tmp_path):
    split = make_split("openbookqa", 0, source, SMALL)
    write_split(split, tmp_path / "s")
    folder = made_up_folder(tmp_path / "other")
    path = folder / "openbookqa" / "train.jsonl"
    path.write_text(path.read_text().replace("keeper", "warden"))
    with pytest.raises(InputError, match=r"openbookqa/train/\d+, listed in .*, differs"):
        read_split(tmp_path / "s", Source("folder", folder))
    write_lines(path, [])
    with pytest.raises(InputError, match="is empty"):
        read_split(tmp_path / "s", Source("folder", folder))


def test_a_tampered_manifest_cannot_mix_forgotten_and_held_out_items(source, tmp_path):
    manifest = to_manifest(make_split("boolq", 0, source, SMALL))
    manifest["parts"]["heldout/boolq"][0] = manifest["parts"]["forget"][0]
    path = tmp_path / "split.json"
    path.write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=r"heldout/boolq overlaps forget: boolq/train/\d+ and"):
        read_split(path, source)
    manifest = to_manifest(make_split("boolq", 0, source, SMALL))
    manifest["parts"]["forget_eval"][0] = manifest["parts"]["heldout/boolq"][0]
    path.write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="forget_eval holds an item that is never forgotten"):
        read_split(path, source)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"schema": "tfrnet.split/1"}',
        '{"schema": "tfrnet.split/1", "parts": []}',
        '{"schema": "tfrnet.split/1", "parts": {"forget": [{"key": 5, "digest": ""}]}}',
        '{"schema": "x"}',
    ],
)
def test_what_is_no_manifest_is_said_to_be_none(text, source, tmp_path):
    path = tmp_path / "split.json"
    path.write_text(text)
    with pytest.raises(
        InputError, match=r"split\.json (is not a split made by|has schema x, not )"
    ):
        read_split(path, source)


def test_a_missing_manifest_names_the_command_that_makes_one(source, tmp_path):
    with pytest.raises(InputError, match="'tfrnet split --task boolq --out"):
        read_split(tmp_path / "none", source)


class Alone(Parity):
    alone = True


class KeptElsewhere(Alone):
    """Retain and guard items come from where the held-out ones do."""

    kept = "test"


@pytest.mark.parametrize("task", [Alone, KeptElsewhere])
def test_a_task_that_stands_alone_needs_no_topics(task, monkeypatch):
    monkeypatch.setattr("tfrnet.data.protocol.find_task", lambda name: task())
    monkeypatch.setattr("tfrnet.data.protocol.task_names", lambda: ["parity"])
    split = make_split("parity", 0, Source(), SMALL)
    sizes = {name: len(items) for name, items in split.parts().items()}
    assert sizes == {
        "forget": 12,
        "forget_eval": 10,
        "retain/parity": 10,
        "guard/parity": 5,
        "heldout/parity": 10,
    }
    kept = {item.key.split("/")[1] for item in (*split.retain["parity"], *split.guard["parity"])}
    assert kept == {task().pool}
    assert {item.key.split("/")[1] for item in split.forget} == {"train"}
    with pytest.raises(InputError, match=r"kept \+ 5 guarded; ask .*--retain or --guard\)$"):
        make_split("parity", 0, Source(), replace(SMALL, retain=(900, 1)))


def test_impossible_sizes_are_refused(source):
    with pytest.raises(
        InputError, match="boolq has 120 unrelated items, but the split needs 800 forgotten"
    ):
        make_split("boolq", 0, source, replace(SMALL, requests=200))
    with pytest.raises(InputError, match="cannot evaluate 9 of the 8 items"):
        Sizes(requests=2, request_size=4, forget_eval=9)
    with pytest.raises(InputError, match=r"unknown task 'tofu'; choose from .*boolq"):
        make_split("tofu", 0, source, SMALL)


def test_shared_groups_name_both_items(source):
    split = make_split("boolq", 0, source, SMALL)
    with pytest.raises(InputError, match="b overlaps a"):
        refuse_shared_groups({"a": split.forget[:1], "b": split.forget[:1]})


@pytest.mark.slow
@needs_real
def test_the_real_streams_are_the_same_on_every_machine():
    """A digest of everything that is forgotten, kept, guarded and evaluated with seed 0."""
    digests = {}
    for task in STREAMS:
        split = make_split(task, 0, real_source())
        assert len(split.forget) == 160
        assert all(len(items) == 100 for items in (split.forget_eval, *split.heldout.values()))
        manifest = json.dumps(to_manifest(split), sort_keys=True)
        digests[task] = hashlib.sha256(manifest.encode()).hexdigest()[:16]
    assert digests == {
        "arithmetic": "2041ebb604abb1a3",
        "openbookqa": "2e65b9ed517dd9d6",
        "boolq": "3201162676e25663",
    }
