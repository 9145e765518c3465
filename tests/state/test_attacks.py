"""Whoever can write to a state but lacks its key cannot change its history unseen."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.state.attacks import (
    ATTACKS,
    FOUND_BY_HEAD,
    FOUND_BY_ITSELF,
    FOUND_BY_PUBLIC_KEY,
    Attack,
    Scene,
    lines_of,
    put,
    random_attack,
)
from tests.state.made_up import commit, contents, make_state
from tfrnet.core.clock import now
from tfrnet.core.signing import read_key
from tfrnet.method_state import verify_state
from tfrnet.state.check import Check
from tfrnet.state.evidence import Kept
from tfrnet.state.head import make_head
from tfrnet.state.store import StateStore


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene.build(tmp_path_factory.mktemp("scene"))


@pytest.fixture
def scene(built: Scene, tmp_path: Path) -> Scene:
    return built.copied(tmp_path / "state")


def failures(folder: Path, kept: Kept) -> list[Check]:
    return [check for check in verify_state(folder, kept) if not check.passed]


def test_the_state_itself_passes_with_all_that_was_kept(scene: Scene) -> None:
    before = contents(scene.folder)
    checks = {check.name: check for check in verify_state(scene.folder, scene.kept)}
    assert all(check.passed for check in checks.values())
    assert "lines 1 to 9 are signed" in checks["signatures"].detail
    assert checks[f"head of {scene.head['time']}"].detail == "line 9 of 9"
    assert contents(scene.folder) == before


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("attack", FOUND_BY_ITSELF)
def test_without_the_key_nothing_can_be_changed(scene: Scene, attack: Attack, seed: int) -> None:
    attack(scene, Random(seed))
    assert failures(scene.folder, Kept())


@pytest.mark.parametrize("attack", FOUND_BY_PUBLIC_KEY)
def test_history_signed_by_others_or_nobody_is_found_with_the_public_key(
    scene: Scene, attack: Attack
) -> None:
    attack(scene, Random(1))
    assert failures(scene.folder, Kept()) == []
    (failed,) = failures(scene.folder, Kept(public_key=scene.public_key))
    assert failed.name == "public key"
    assert failures(scene.folder, Kept((scene.head,)))


SAYS = {
    "remove_the_tail": "lines were removed, or an older copy was put back",
    "put_back_an_older_copy": "lines were removed, or an older copy was put back",
    "put_another_state_in_its_place": "another state, or one rewritten",
    "fork_with_the_key": "history was rewritten, or this is a fork",
}


@pytest.mark.parametrize("attack", FOUND_BY_HEAD)
def test_what_is_sound_in_itself_is_found_with_a_head(scene: Scene, attack: Attack) -> None:
    # A seed that leaves lines of the key in force: the public key alone does not help.
    attack(scene, Random(0))
    assert failures(scene.folder, Kept(public_key=scene.public_key)) == []
    (failed,) = failures(scene.folder, Kept((scene.head,)))
    assert failed.name.startswith("head of ")
    assert SAYS[attack.__name__] in failed.detail


@pytest.mark.parametrize("seed", range(30))
def test_a_random_attack_is_found(scene: Scene, seed: int) -> None:
    name = random_attack(scene, Random(seed))
    assert failures(scene.folder, scene.kept), (name, seed)


def test_the_page_lists_every_attack_and_what_finds_it() -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    table = page.partition("| attack, without the key | found by |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ([a-z ]+?)(?: \(.*?\))? \| (.*) \|$", table, flags=re.MULTILINE)

    def listed(attacks: tuple[Attack, ...]) -> set[str]:
        return {attack.__name__.replace("_", " ") for attack in attacks}

    def found(by: Callable[[str], bool]) -> set[str]:
        return {name for name, finder in rows if by(finder)}

    assert found(lambda finder: finder == "`verify`") == listed(FOUND_BY_ITSELF)
    assert found(lambda finder: "--public-key" in finder) == listed(FOUND_BY_PUBLIC_KEY)
    assert found(lambda finder: finder == "`--head`") == listed(FOUND_BY_HEAD)
    assert len(rows) == len(ATTACKS)


def test_every_kind_of_attack_is_among_the_random_ones(built: Scene, tmp_path: Path) -> None:
    names = {random_attack(built.copied(tmp_path / str(n)), Random(n)) for n in range(90)}
    assert names == {attack.__name__ for attack in ATTACKS}


def test_a_ledger_that_went_on_from_a_head_passes(scene: Scene) -> None:
    with StateStore.open(scene.folder, write=True, key=scene.key) as store:
        commit(store, 7)
        store.rollback(0)
    assert failures(scene.folder, scene.kept) == []


def test_the_public_key_of_before_a_rotation_holds_after_it(scene: Scene) -> None:
    assert [line["kind"] for line in lines_of(scene.folder)][4] == "key"
    old = read_key(scene.old_key).public
    assert scene.early["signer"] == old.text != scene.head["signer"]
    assert failures(scene.folder, Kept((scene.early, scene.head), old)) == []


def test_a_head_finds_rewritten_history_of_an_unsigned_state_too(tmp_path: Path) -> None:
    folder = make_state(tmp_path / "state")
    head = make_head(StateStore.open(folder), now(), None)
    assert "signature" not in head
    assert failures(folder, Kept((head,))) == []
    lines = lines_of(folder)
    lines[1]["time"] = "1999-12-31T00:00:00+00:00"
    put(folder, lines)
    assert failures(folder, Kept()) == []
    (failed,) = failures(folder, Kept((head,)))
    assert "history was rewritten" in failed.detail
    put(folder, lines[:-1])
    (failed,) = failures(folder, Kept((head,)))
    assert "lines were removed" in failed.detail
