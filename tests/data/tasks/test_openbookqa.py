import pytest

from tests.datasets import needs_real, openbookqa_rows, real_source, write_lines
from tfrnet.core.errors import InputError
from tfrnet.data.sources import Source
from tfrnet.data.tasks import find_task


def _load(folder, rows):
    write_lines(folder / "openbookqa" / "test.jsonl", rows)
    return find_task("openbookqa").load("test", Source("folder", folder))


def test_a_row_is_its_stem_and_four_choices(tmp_path):
    item = _load(tmp_path, openbookqa_rows(2))[1]
    assert item.prompt == "On day 1 the keeper looked for the"
    assert len(item.choices) == 4
    assert item.question().gold == 1


def test_a_key_with_a_space_before_it_is_read_as_the_harness_does(tmp_path):
    (row,) = openbookqa_rows(1)
    (item,) = _load(tmp_path, [row | {"answerKey": " C"}])
    assert item.question().gold == 2


def test_other_wordings_keep_the_right_answer(tmp_path):
    item = _load(tmp_path, openbookqa_rows(3))[2]
    wordings = find_task("openbookqa").rephrased(item)
    assert len(wordings) == 4
    for other in wordings.values():
        assert other.question().gold == 2
        assert item.prompt in other.prompt
    letters = wordings["letters"]
    assert letters.choices == tuple("ABCD")
    assert f"C. {item.answer}\n" in letters.prompt


def test_the_longest_choice_is_the_first_of_equals(tmp_path):
    (row,) = openbookqa_rows(1)
    for choice, text in zip(row["question"]["choices"], ("aa", "bbbb", "cccc", "d"), strict=True):
        choice["text"] = text
    right = _load(tmp_path, [row | {"answerKey": "B"}, row | {"answerKey": "C"}])
    assert find_task("openbookqa").floors(right)["longest choice"] == 50.0


def test_bad_rows_are_named(tmp_path):
    (row,) = openbookqa_rows(1)
    with pytest.raises(InputError, match="openbookqa/test/0: answerKey 'E' is none of the labels"):
        _load(tmp_path, [row | {"answerKey": "E"}])
    row["question"]["choices"][2]["text"] = "  "
    with pytest.raises(InputError, match="openbookqa/test/0: choice 3 is empty"):
        _load(tmp_path, [row])


@needs_real
def test_the_real_rows_are_counted_as_published():
    task = find_task("openbookqa")
    parts = [task.load(split, real_source()) for split in task.splits]
    assert [len(part) for part in parts] == [4957, 500, 500]
    golds = [item.question().gold for item in parts[2]]
    assert [golds.count(i) for i in range(4)] == [138, 126, 132, 104]
    # V25: always the longest choice scores 36.2 % on the test split.
    assert task.floors(parts[2]) == {"longest choice": pytest.approx(36.2), "random": 25.0}
