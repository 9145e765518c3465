"""Finding parts by their place and by entry points, on a made-up package."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tfrnet.core import registry
from tfrnet.core.errors import InputError, TfrnetWarning
from tfrnet.core.registry import Registry

OURS = {
    "made_up/__init__.py": "",
    "made_up/parts/__init__.py": "",
    "made_up/parts/two_words.py": "PART = 'a file'",
    "made_up/parts/folder/__init__.py": "",
    "made_up/parts/folder/part.py": "PART = 'a folder'",
    "made_up/parts/folder/config.py": "CONFIG = 'of a folder'",
    "made_up/parts/whole/__init__.py": "PART = 'a folder that says it itself'",
}
THEIRS = {
    "another.py": "PART = 'a module'\nTHING = 'a thing'",
    "not_there.py": "import no_such_module",
    "empty.py": "",
    "another-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: another\nVersion: 1\n",
    "another-1.dist-info/entry_points.txt": (
        "[made_up.parts]\nmodule = another\nthing = another:THING\ntwo-words = another\n"
    ),
}
BROKEN = "lost = not_there\nbare = empty\nmisspelt = another:NOTHING\n"


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    write(tmp_path, OURS | THEIRS)
    monkeypatch.syspath_prepend(tmp_path)
    registry._installed.cache_clear()
    yield Registry("part", "made_up.parts", "made_up.parts", "PART")
    registry._installed.cache_clear()
    for name in [n for n in sys.modules if n.split(".")[0] in ("made_up", "another", "not_there")]:
        del sys.modules[name]


@pytest.fixture
def broken(parts: Registry, tmp_path: Path) -> Registry:
    with (tmp_path / "another-1.dist-info" / "entry_points.txt").open("a") as file:
        file.write(BROKEN)
    return parts


def test_names_are_of_files_folders_and_entry_points(parts: Registry):
    assert parts.names() == ["folder", "module", "thing", "two-words", "whole"]


def test_listing_names_imports_no_part(parts: Registry):
    parts.names()
    assert not {"made_up.parts", "another"} & set(sys.modules)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("two-words", "a file"),  # of ours and of theirs ours is taken
        ("folder", "a folder"),
        ("whole", "a folder that says it itself"),
        ("module", "a module"),
        ("thing", "a thing"),
    ],
)
def test_a_part_is_found(parts: Registry, name: str, part: str):
    assert parts.find(name) == part


@pytest.mark.parametrize("name", ["other", "two_words", "", "two-words.PART"])
def test_an_unknown_part_is_named_with_those_there_are(parts: Registry, name: str):
    known = "folder, module, thing, two-words, whole"
    with pytest.raises(InputError, match=f"^unknown part {name!r}; choose from {known}$"):
        parts.find(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("lost", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("bare", "empty has no PART"),
        ("misspelt", "AttributeError: module 'another' has no attribute 'NOTHING'"),
    ],
)
def test_what_cannot_be_loaded_is_named_with_its_package(broken: Registry, name: str, reason: str):
    message = f"^the part '{name}' of package another cannot be loaded: {reason}$"
    with pytest.raises(InputError, match=message):
        broken.find(name)


def test_what_cannot_be_loaded_leaves_the_others_alone(broken: Registry):
    with pytest.warns(TfrnetWarning, match="cannot be loaded") as warned:
        found = broken.all()
    assert len(warned) == 3
    assert list(found) == ["folder", "module", "thing", "two-words", "whole"]


def test_a_part_must_have_the_name_that_it_is_found_by(parts: Registry, tmp_path: Path):
    (tmp_path / "another.py").write_text("class PART:\n    name = 'module'\nTHING = PART\n")
    named = replace(parts, named="name")
    assert named.find("module").name == "module"
    with pytest.raises(InputError, match=r"'thing' of package another .*: its name is 'module'"):
        named.find("thing")


def test_a_package_that_is_not_there_has_no_parts():
    assert Registry("part", "tfrnet.no_such_place", "no.such.group", "PART").names() == []


@pytest.mark.parametrize(
    ("place", "registry_name"),
    [
        ("tfrnet.method", "METHODS"),
        ("tfrnet.data.tasks", "TASKS"),
        ("tfrnet.evaluation.attacking.attack", "ATTACKS"),
        ("tfrnet.cli.app", "COMMANDS"),
    ],
)
def test_every_part_of_ours_can_be_loaded_and_knows_its_name(place: str, registry_name: str):
    found = getattr(__import__(place, fromlist=[registry_name]), registry_name).all()
    assert found
    for name, part in found.items():
        own = getattr(part, "method", getattr(part, "name", name))
        assert own == name


@pytest.mark.parametrize("name", ["two-words", "whole", "module", "unknown"])
def test_a_single_file_has_no_other_part(parts: Registry, name: str):
    assert parts.find_part(name, "config") is None


def test_another_part_of_a_folder_is_found(parts: Registry):
    assert parts.find_part("folder", "config") == "of a folder"
