"""A kept entry is what was put in, or it is not there at all."""

from __future__ import annotations

import json
import math
import sys
import threading
from itertools import product

import pytest

from tfrnet.cli.main import main
from tfrnet.evaluation import cache as module
from tfrnet.evaluation.cache import Cache

VALUES = [
    [],
    {},
    ["text", "with \n newline", "naïve 漢字", "\ud800"],
    [0.1, 1 / 3, -1e-300, 5e-324, 123456789.123456789, -0.0, math.inf, -math.inf],
    [[{"log_probs": [-0.1, -2.5], "is_argmax": [True, False], "mean": [], "variance": []}]],
]


def entry(cache, key):
    return cache.folder / f"{key}.json"


def exact(value):
    """Tell 0.0 from -0.0, and True from 1."""
    return repr(value)


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "kept")


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_what_is_kept_comes_back_to_the_last_bit(cache, value):
    key = cache.key("model", "kind", [1, 2], "cpu")
    assert cache.get(key) is None
    cache.put(key, value)
    assert exact(cache.get(key)) == exact(value)
    assert exact(Cache(cache.folder).get(key)) == exact(value)
    assert [path.name for path in cache.folder.iterdir()] == [f"{key}.json"]


def test_nan_is_kept(cache):
    cache.put("k", [math.nan])
    assert math.isnan(cache.get("k")[0])


def test_every_part_of_a_key_counts(cache):
    inputs = ([], [[]], [1], ["1"], [[1], 2], [[1, 2]], [1, [2]], {"a": [1]}, {"a": [1], "b": 2})
    parts = [
        *product(("m", "n"), ("k", ""), inputs, ("cpu",)),
        *product(("m", "mk"), ("k", "kk"), ([],), ("cuda",)),
    ]
    keys = [cache.key(*part) for part in parts]
    assert len(set(keys)) == len(parts)
    assert Cache(cache.folder).key(*parts[0]) == keys[0]
    assert all(len(key) == 64 and key.isalnum() for key in keys)


def test_the_order_in_a_dictionary_does_not_count(cache):
    assert cache.key("m", "k", {"a": 1, "b": 2}, "cpu") == cache.key(
        "m", "k", {"b": 2, "a": 1}, "cpu"
    )


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_another_version_of_the_libraries_is_another_key(cache, package, monkeypatch):
    before = cache.key("m", "k", [], "cpu")
    version = module.version
    monkeypatch.setattr(module, "version", lambda n: "0" if n == package else version(n))
    assert cache.key("m", "k", [], "cpu") != before


def test_another_format_is_another_key(cache, monkeypatch):
    before = cache.key("m", "k", [], "cpu")
    monkeypatch.setattr(module, "_FORMAT", module._FORMAT + 1)
    assert cache.key("m", "k", [], "cpu") != before


def test_the_folder_is_that_of_tfrnets_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TFRNET_CACHE", str(tmp_path))
    assert Cache().folder == tmp_path / "evaluations"


# Damage


def test_a_truncated_entry_is_absent(cache):
    cache.put("k", [1.5, "text"])
    whole = entry(cache, "k").read_bytes()
    for length in range(len(whole)):
        entry(cache, "k").write_bytes(whole[:length])
        assert cache.get("k") is None


def test_a_changed_byte_never_gives_another_value(cache):
    value = [[1.5, "text"], {"a": [True]}]
    cache.put("k", value)
    whole = entry(cache, "k").read_bytes()
    ignored = 0
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 7
        entry(cache, "k").write_bytes(changed)
        found = cache.get("k")
        assert found is None or exact(found) == exact(value)
        ignored += found is None
    assert ignored > 0.9 * len(whole)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"null", b"[]", b"{}", b"7", b"\xff\xfe", b'{"value": 1}', b'{"key": "k"}'),
        pytest.param(
            b"[" * 100_000,
            id="deep",
        ),
    ],
)
def test_what_is_no_entry_is_absent(cache, content):
    cache.folder.mkdir()
    entry(cache, "k").write_bytes(content)
    assert cache.get("k") is None
    cache.put("k", [1])
    assert cache.get("k") == [1]


def test_an_entry_under_another_name_is_absent(cache):
    cache.put("k", [1])
    entry(cache, "k").rename(entry(cache, "l"))
    assert cache.get("l") is None


def test_a_value_that_was_edited_is_absent(cache):
    cache.put("k", [0.25])
    text = json.loads(entry(cache, "k").read_text())
    entry(cache, "k").write_text(json.dumps(text | {"value": [0.75]}))
    assert cache.get("k") is None


# Folders that cannot be used


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "kept")
    cache.put("k", [1])
    assert cache.get("k") is None


def test_an_entry_that_cannot_be_replaced_is_no_error(cache):
    entry(cache, "k").mkdir(parents=True)
    (entry(cache, "k") / "file").write_text("")
    cache.put("k", [1])
    assert cache.get("k") is None


def full(*arguments, **named):
    raise OSError(28, "No space left on device")


def test_a_full_disk_is_no_error_and_keeps_what_was_there(cache, monkeypatch):
    cache.put("k", [1])
    monkeypatch.setattr(module.json, "dump", full)
    cache.put("k", [2])
    assert cache.get("k") == [1]


def test_a_full_disk_leaves_nothing_behind(cache, monkeypatch):
    monkeypatch.setattr(module.json, "dump", full)
    cache.put("k", [2])
    assert list(cache.folder.iterdir()) == []


def test_writers_and_readers_at_once_see_whole_entries(cache):
    value = list(range(5000))
    wrong = []

    def write():
        for _ in range(10):
            cache.put("k", value)

    def read():
        for _ in range(30):
            if cache.get("k") not in (None, value):
                wrong.append(True)

    threads = [threading.Thread(target=work) for work in (write, write, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert cache.get("k") == value
    assert len(list(cache.folder.iterdir())) == 1


# For its owner alone


def test_folder_entries_and_secret_are_for_their_owner_alone(cache):
    cache.folder.mkdir(mode=0o755)  # as an earlier version made it
    key = cache.key("m", "k", [], "cpu")
    cache.put(key, [0.5])
    modes = [path.stat().st_mode & 0o777 for path in (cache.folder, entry(cache, key))]
    assert modes == [0o700, 0o600]
    assert (cache.folder.with_name("kept.key")).stat().st_mode & 0o777 == 0o600


def test_names_are_keyed_so_that_nobody_can_test_a_guess_by_them(cache, tmp_path):
    other = Cache(tmp_path / "other" / "kept")
    assert cache.key("m", "k", [1], "cpu") != other.key("m", "k", [1], "cpu")
    assert cache.key("m", "k", [1], "cpu") == Cache(cache.folder).key("m", "k", [1], "cpu")


def test_processes_that_begin_together_have_one_secret(cache, monkeypatch):
    late = Cache(cache.folder)
    first = []

    def known_before_the_other_began():
        monkeypatch.undo()
        first.append(cache.key("m", "k", [], "cpu"))
        cache.put(first[0], [1])

    monkeypatch.setattr(late, "_known_secret", known_before_the_other_began)
    assert late.key("m", "k", [], "cpu") == first[0] == Cache(cache.folder).key("m", "k", [], "cpu")
    assert late.get(first[0]) == [1]


def test_a_damaged_secret_is_made_anew(cache):
    cache.folder.with_name("kept.key").write_bytes(b"cut off")
    assert cache.key("m", "k", [], "cpu") == Cache(cache.folder).key("m", "k", [], "cpu")


def test_entries_of_an_earlier_version_which_may_hold_replies_are_removed(cache):
    cache.folder.mkdir()
    old = cache.folder / f"{'a' * 64}.json"
    old.write_text('{"key": "a", "value": ["Jane Roe lives in Springfield"]}')
    cache.key("m", "k", [], "cpu")
    assert not old.exists()


def test_purging_leaves_nothing(cache):
    for number in range(3):
        cache.put(cache.key("m", "k", [number], "cpu"), [number])
    before = cache.key("m", "k", [0], "cpu")
    size = sum(path.stat().st_size for path in cache.folder.iterdir())
    assert cache.purge() == (3, size)
    assert list(cache.folder.parent.rglob("*")) == [cache.folder]
    assert cache.key("m", "k", [0], "cpu") != before
    assert cache.size() == (0, 0)


def test_the_command_shows_and_purges(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TFRNET_CACHE", str(tmp_path))
    cache = Cache()
    cache.put(cache.key("m", "k", [], "cpu"), [0.5])
    said = []
    for options in ([], ["--purge"], ["--purge", "--json"]):
        monkeypatch.setattr(sys, "argv", ["tfrnet", "cache", *options])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        said.append(capsys.readouterr().out)
    assert said[0] == f"{cache.folder}: 1 entries, 0.0 MB\n"
    assert said[1] == f"{cache.folder}: 1 entries, 0.0 MB removed\n"
    assert json.loads(said[2])["entries"] == 0
