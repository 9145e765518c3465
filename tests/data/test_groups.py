"""Groups that examples name, and a warning where a group has few."""

from __future__ import annotations

from tfrnet.data.examples import Example
from tfrnet.data.groups import places_by_group, small_groups


def named(*groups: str) -> list[Example]:
    return [Example(str(n), "x", group=group) for n, group in enumerate(groups)]


def test_places_by_name() -> None:
    assert places_by_group(named("b", "a", "b", "a")) == {"a": [1, 3], "b": [0, 2]}
    assert list(places_by_group(named("b", "a"))) == ["a", "b"]


def test_examples_without_a_group_are_in_none() -> None:
    assert places_by_group(named("", "a", "")) == {"a": [1]}


def test_one_group_of_all_says_no_more_than_all_do() -> None:
    assert places_by_group(named("a", "a")) == {}
    assert places_by_group(named("", "")) == {}
    assert places_by_group([]) == {}


def test_a_group_of_few_guard_examples_is_told() -> None:
    guard = named(*"aaaabbb")
    (line,) = small_groups(named("c", ""), guard)
    assert line.startswith("the guard has fewer than 4 examples of groups 'b' (3), 'c' (0): ")
    (line,) = small_groups([], guard)
    assert "of group 'b' (3): " in line


def test_enough_or_no_groups_need_no_word() -> None:
    assert list(small_groups(named(""), named(*"aaaabbbb"))) == []
    assert list(small_groups(named(""), named("", ""))) == []
