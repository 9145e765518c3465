"""What is evaluated, and every way to ask for something that cannot be."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.datasets import made_up_folder, write_lines
from tfrnet.core.errors import InputError
from tfrnet.data.fewshot import with_shots
from tfrnet.data.protocol import Sizes, make_split
from tfrnet.data.requests import Request
from tfrnet.data.sources import Source
from tfrnet.data.tasks import find_task
from tfrnet.data.tofu import load_tofu
from tfrnet.evaluation.plan import Options, make_plan

SMALL = Sizes(requests=3, request_size=4, forget_eval=10, heldout=7, retain=(10, 6), guard=(5, 4))


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """With 40 rows of OpenBookQA to evaluate, 80 of BoolQ, 480 of arithmetic."""
    return Source("folder", made_up_folder(tmp_path_factory.mktemp("data")))


@pytest.fixture(scope="module")
def split(source):
    return make_split("boolq", 0, source, SMALL)


def plan(source, *tasks, split=None, **options):
    return make_plan(Options(tasks=tasks, **options), source, split)


def keys(part):
    return [item.key for item in part.items]


# Options


@pytest.mark.parametrize("name", ["bool", "BoolQ", "wmdp", "boolq2", "tofu10", "all"])
def test_an_unknown_task_is_named_with_those_there_are(name):
    expected = f"unknown task '{name}'; choose from arithmetic, boolq, knowundo, lume, "
    expected += "openbookqa, tofu, privacy, "
    with pytest.raises(InputError, match=expected + "robustness"):
        Options(tasks=("boolq", name))


def test_no_task_is_refused():
    with pytest.raises(InputError, match="--tasks names no task; choose from arithmetic, boolq"):
        Options(tasks=())


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_leaves_nothing_is_refused(limit):
    with pytest.raises(InputError, match=f"--limit {limit} leaves nothing to evaluate"):
        Options(tasks=("boolq",), limit=limit)


def test_a_limit_and_everything_exclude_each_other():
    with pytest.raises(InputError, match="give --limit or --full, not both"):
        Options(tasks=("boolq",), limit=5, full=True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("boolq:2da", "boolq takes no options"),
        ("lume:people+forget+x", "lume takes at most 2 options, but 'people.forget.x' was given"),
        ("arithmetic:9dx", "unknown arithmetic sub-task '9dx'"),
        ("arithmetic:", "unknown arithmetic sub-task ''"),
        ("tofu:forget05", "'tofu"),
        ("robustness:unmask", "'robustness"),
    ],
)
def test_options_that_a_task_does_not_have_are_refused(source, name, message):
    with pytest.raises(InputError, match=message):
        plan(source, name, limit=2)


# How many


def test_a_limit_larger_than_the_set_is_refused_and_says_how_many_there_are(source):
    assert len(plan(source, "openbookqa", limit=40).parts[0].items) == 40
    message = r"41 items are asked for, but openbookqa \(test\) has only 40"
    with pytest.raises(InputError, match=message):
        plan(source, "openbookqa", limit=41)
    with pytest.raises(InputError, match=message):
        plan(source, "boolq", "openbookqa", limit=41, items="first")


def test_the_usual_hundred_of_a_set_that_has_fewer_are_refused(source):
    with pytest.raises(InputError, match=r"100 .*openbookqa \(test\) has only 40"):
        plan(source, "openbookqa")


def test_a_hundred_items_are_usual(source):
    assert len(plan(source, "arithmetic").parts[0].items) == 100


def test_everything(source):
    found = plan(source, "boolq", "openbookqa", "arithmetic:2da", full=True)
    assert [len(part.items) for part in found.parts] == [80, 40, 120]
    for part in found.parts:
        assert part.items == part.task.load(part.task.evaluation, source)


def test_the_harnesss_split_is_evaluated(source):
    found = plan(source, "boolq", "openbookqa", "arithmetic", limit=4)
    names = [(part.task.name, part.name) for part in found.parts]
    assert names == [
        ("boolq", "validation"),
        ("openbookqa", "test"),
        ("arithmetic", "validation"),
    ]


# Which


def test_the_first_items_are_those_of_the_file(source):
    for seed in (0, 1):
        (part,) = plan(source, "boolq", limit=6, items="first", seed=seed).parts
        assert keys(part) == [f"boolq/validation/{number}" for number in range(6)]


def test_a_sample_is_that_of_its_seed(source):
    one, again, other = (plan(source, "boolq", limit=20, seed=s).parts[0] for s in (0, 0, 1))
    assert keys(one) == keys(again)
    assert set(keys(one)) != set(keys(other))
    assert len(set(keys(one))) == 20
    assert keys(one) != sorted(keys(one), key=lambda key: int(key.split("/")[-1]))


def test_a_smaller_sample_is_a_part_of_a_larger_one(source):
    small, large = (plan(source, "boolq", limit=n).parts[0] for n in (5, 30))
    assert keys(large)[:5] == keys(small)


@pytest.mark.parametrize("items", ["first", "sample"])
def test_arithmetic_is_mixed_equally(source, items):
    (part,) = plan(source, "arithmetic", limit=8, items=items).parts
    assert [item.stratum for item in part.items] == ["2da", "2ds", "3da", "3ds"] * 2


# Solved examples


def test_without_shots_questions_stand_alone(source):
    (part,) = plan(source, "boolq", limit=3, items="first").parts
    assert part.items == find_task("boolq").load("validation", source)[:3]


@pytest.mark.parametrize("name", ["boolq", "openbookqa", "arithmetic"])
def test_shots_come_from_the_training_split_and_share_nothing_with_the_items(source, name):
    task = find_task(name)
    (plain,) = plan(source, name, limit=30).parts
    (part,) = plan(source, name, limit=30, shots=3).parts
    assert keys(part) == keys(plain)
    heads = set()
    for before, after in zip(plain.items, part.items, strict=True):
        assert after.prompt.endswith(before.prompt)
        assert (after.answer, after.choices) == (before.answer, before.choices)
        heads.add(after.prompt.removesuffix(before.prompt))
    (head,) = heads
    solved = head.removesuffix("\n\n").split("\n\n")
    assert len(solved) == 3
    training = {item.example().joined: item.group for item in task.load(task.training, source)}
    groups = {training[text] for text in solved}
    assert len(groups) == 3
    assert groups.isdisjoint(item.group for item in plain.items)


def test_shots_are_those_of_the_seed(source):
    prompts = [
        plan(source, "openbookqa", limit=1, items="first", shots=2, seed=seed)
        .parts[0]
        .items[0]
        .prompt
        for seed in (0, 0, 1)
    ]
    assert prompts[0] == prompts[1] != prompts[2]


def test_more_shots_than_there_are_training_items_are_refused(source):
    with pytest.raises(InputError, match="1000 solved examples are asked for, but "):
        plan(source, "openbookqa", limit=2, shots=1000)


def test_what_was_forgotten_is_no_solved_example(source):
    shots = plan(source, "openbookqa", limit=2, shots=3).parts[0].shots
    forgotten = [Request("r", (shots[0].example(),))]
    options = Options(tasks=("openbookqa",), limit=2, shots=3)
    others = make_plan(options, source, forgotten=forgotten).parts[0].shots
    assert len(others) == 3
    assert shots[0] not in others
    assert shots[1] in others


def test_an_item_is_never_its_own_solved_example(source):
    first, second, third = find_task("boolq").load("train", source)[:3]
    assert first.group == second.group != third.group
    for shot in (first, second):
        with pytest.raises(InputError, match=f"{first.key}: one of its few-shot examples"):
            with_shots(first, [third, shot])
    solved = with_shots(first, [third])
    assert solved.prompt == f"{third.prompt} {third.answer}\n\n{first.prompt}"
    assert solved.passage is None
    assert with_shots(first, []) == first


# TOFU and privacy


def test_tofu_is_taken_whole_where_no_limit_is_given(source):
    for options in ({}, {"full": True}):
        found = plan(source, "tofu", "privacy", **options)
        assert {name: len(rows) for name, rows in found.tofu.items()} == {
            "forget": 20,
            "retain": 20,
            "real_authors": 8,
            "world_facts": 8,
        }
        assert [len(rows) for rows in found.privacy] == [20, 20]
    assert found.parts == []


def test_a_tofu_set_smaller_than_the_limit_is_taken_whole(source):
    found = plan(source, "tofu", limit=10)
    assert [len(rows) for rows in found.tofu.values()] == [10, 10, 8, 8]
    assert found.tofu["world_facts"] == load_tofu("world_facts_perturbed", source)


def test_a_limit_larger_than_every_tofu_set_is_refused(source):
    plan(source, "tofu", limit=20)
    with pytest.raises(InputError, match="21 items are asked for, but TOFU has only 20"):
        plan(source, "tofu", limit=21)
    with pytest.raises(InputError, match="21 items are asked for, but the privacy sets has only"):
        plan(source, "privacy", limit=21)


def test_the_first_rows_of_tofu_are_those_of_the_file(source):
    found = plan(source, "tofu", "privacy", limit=3, items="first")
    rows = load_tofu("forget10_perturbed", source)[:3]
    assert found.tofu["forget"] == rows
    assert found.privacy == (rows, load_tofu("holdout10", source)[:3])


def test_a_sample_of_tofu_is_that_of_its_seed(source):
    one, again, other = (plan(source, "tofu", "privacy", limit=5, seed=s) for s in (0, 0, 1))
    assert one.tofu == again.tofu
    assert one.privacy == again.privacy
    assert one.tofu["forget"] != other.tofu["forget"]


def test_a_missing_file_is_named(tmp_path):
    folder = made_up_folder(tmp_path / "data")
    (folder / "tofu" / "holdout10.jsonl").unlink()
    (folder / "boolq" / "dev.jsonl").unlink()
    with pytest.raises(InputError, match=r"has neither tofu/holdout10\.jsonl nor"):
        plan(Source("folder", folder), "privacy")
    with pytest.raises(InputError, match=r"has neither boolq/dev\.jsonl nor"):
        plan(Source("folder", folder), "boolq")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer": " "}, "tofu/retain_perturbed/0: a question or answer is empty"),
        ({"perturbed_answer": ["x", ""]}, "tofu/retain_perturbed/0: a question or answer is empt"),
        ({"question": None}, "tofu/retain_perturbed/0: field 'question' is missing"),
    ],
)
def test_a_bad_row_of_tofu_is_named(tmp_path, change, message):
    folder = made_up_folder(tmp_path / "data")
    path = folder / "tofu" / "retain_perturbed.jsonl"
    first, *rest = [json.loads(line) for line in path.read_text().splitlines()]
    write_lines(path, [first | change, *rest])
    with pytest.raises(InputError, match=message):
        plan(Source("folder", folder), "tofu")


def test_a_row_of_tofu_without_wrong_answers_is_refused_before_the_model_is_asked(tmp_path):
    folder = made_up_folder(tmp_path / "data")
    path = folder / "tofu" / "retain_perturbed.jsonl"
    first, *rest = [json.loads(line) for line in path.read_text().splitlines()]
    write_lines(path, [first | {"perturbed_answer": []}, *rest])
    with pytest.raises(InputError, match="tofu/retain_perturbed/0"):
        plan(Source("folder", folder), "tofu")


# Choices and answers that cannot be


def test_an_empty_choice_is_named(tmp_path):
    folder = made_up_folder(tmp_path / "data")
    path = folder / "openbookqa" / "test.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[2]["question"]["choices"][1]["text"] = " "
    write_lines(path, rows)
    with pytest.raises(InputError, match=r"openbookqa/test/2: choice 2 is empty"):
        plan(Source("folder", folder), "openbookqa", limit=3)


# Splits and robustness


def test_a_split_decides_what_is_evaluated(source, split):
    found = plan(source, "boolq", "arithmetic", split=split)
    assert [(part.task.name, part.name) for part in found.parts] == [
        ("boolq", "forget"),
        ("boolq", "heldout"),
        ("arithmetic", "heldout"),
    ]
    assert tuple(found.parts[0].items) == split.forget_eval
    assert tuple(found.parts[1].items) == split.heldout["boolq"]
    assert tuple(found.parts[2].items) == split.heldout["arithmetic"]
    assert found.split is split


def test_a_task_that_a_split_lacks_is_refused(source, split):
    poorer = replace(split, heldout={"boolq": split.heldout["boolq"]})
    with pytest.raises(InputError, match="the split has no items of openbookqa; it has boolq"):
        plan(source, "boolq", "openbookqa", split=poorer)


def test_shots_of_a_split_share_nothing_with_its_items(source, split):
    for part in plan(source, "boolq", split=split, shots=2).parts:
        plain = split.forget_eval if part.name == "forget" else split.heldout["boolq"]
        for before, after in zip(plain, part.items, strict=True):
            head = after.prompt.removesuffix(before.prompt)
            assert head.count("Answer: ") == 2
            assert not any(item.prompt in head for item in plain)


def test_a_limit_holds_for_a_split_too(source, split):
    found = plan(source, "boolq", split=split, limit=3)
    assert [len(part.items) for part in found.parts] == [3, 3]


def test_a_limit_larger_than_a_splits_part_is_refused(source, split):
    with pytest.raises(InputError, match="only"):
        plan(source, "boolq", split=split, limit=1000)


def test_sub_tasks_that_are_asked_for_hold_for_a_split_too(source, split):
    try:
        found = plan(source, "arithmetic:2da", split=split)
    except InputError:
        return
    assert {item.stratum for part in found.parts for item in part.items} == {"2da"}


def test_robustness_needs_a_split_and_says_what_makes_one(source):
    with pytest.raises(InputError, match="give --split FOLDER, which 'tfrnet split' makes"):
        plan(source, "robustness", attacks=("unmask",))


@pytest.mark.parametrize(
    ("attacks", "message"),
    [
        (("unmask", "hypnosis"), "unknown attack 'hypnosis'; choose from few-shot, "),
        ((), "--attacks names no attack; choose from few-shot"),
    ],
)
def test_an_unknown_attack_is_named_with_those_there_are(source, split, attacks, message):
    with pytest.raises(InputError, match=message):
        plan(source, "robustness", split=split, attacks=attacks)


def test_attacks_are_looked_at_only_for_robustness(source, split):
    assert plan(source, "boolq", split=split, attacks=("hypnosis",)).parts


def test_steps_count_the_prompts(source):
    found = plan(source, "boolq", "arithmetic", "tofu", "privacy", limit=4)
    # A sum and a TOFU row are continued and scored.
    assert found.steps() == 4 + 2 * 4 + 2 * 16 + 8


def test_solved_examples_are_never_forgotten_ones(source, split):
    found = plan(source, "boolq", split=split, shots=100, limit=3)
    forgotten = {item.group for item in split.forget}
    for part in found.parts:
        assert len(part.shots) == 100
        assert forgotten.isdisjoint(item.group for item in part.shots)
