import pytest

from tests.datasets import boolq_rows, needs_real, real_source, write_lines
from tfrnet.core.errors import InputError
from tfrnet.data.sources import Source
from tfrnet.data.tasks import find_task


def _load(folder, rows):
    write_lines(folder / "boolq" / "dev.jsonl", rows)
    return find_task("boolq").load("validation", Source("folder", folder))


def test_a_row_is_asked_as_the_harness_asks_it(tmp_path):
    row = {"question": "is it old", "title": "Kettle", "answer": True, "passage": "It is old."}
    (item,) = _load(tmp_path, [row])
    assert item.prompt == "Kettle -- It is old.\nQuestion: is it old?\nAnswer:"
    assert item.choices == ("no", "yes")
    assert item.answer == "yes"
    assert item.prompt[slice(*item.passage)] == "Kettle -- It is old."
    assert item.question().gold == 1


def test_rows_on_one_passage_are_one_group(tmp_path):
    items = _load(tmp_path, boolq_rows(4))
    assert items[0].group == items[1].group != items[2].group


def test_other_wordings_keep_question_and_answer(tmp_path):
    item = _load(tmp_path, boolq_rows(2))[1]
    wordings = find_task("boolq").rephrased(item)
    assert len(wordings) == 4
    assert len({other.prompt for other in wordings.values()} | {item.prompt}) == 5
    for other in wordings.values():
        assert item.fields["question"] in other.prompt
        assert item.fields["passage"] in other.prompt
        assert other.choices.index(other.answer) == 1
    first = wordings["question first"]
    assert first.prompt[slice(*first.passage)] == item.fields["passage"]
    assert wordings["true or false"].answer == "True"


@pytest.mark.parametrize("field", ["question", "passage", "answer"])
def test_a_row_without_a_field_is_named(field, tmp_path):
    row = {k: v for k, v in boolq_rows(1)[0].items() if k != field}
    with pytest.raises(InputError, match=rf"boolq/validation/0: field '{field}' is missing"):
        _load(tmp_path, [row])


def test_an_unknown_split_and_an_empty_file_are_refused(tmp_path):
    task = find_task("boolq")
    with pytest.raises(InputError, match="boolq has no split 'test'; it has train, validation"):
        task.load("test", Source("folder", tmp_path))
    with pytest.raises(InputError, match="the split 'validation' of boolq is empty"):
        _load(tmp_path, [])


def test_an_unknown_task_and_an_option_of_a_task_without_any_are_refused():
    with pytest.raises(InputError, match="unknown task 'boolk'; choose from arithmetic, boolq"):
        find_task("boolk")
    with pytest.raises(InputError, match="boolq takes no options"):
        find_task("boolq:short")


@needs_real
def test_the_real_rows_are_counted_as_published():
    task = find_task("boolq")
    train, validation = (task.load(split, real_source()) for split in task.splits)
    assert len(train) == 9427
    assert len(validation) == 3270
    assert sum(item.answer == "yes" for item in validation) == 2033
    # V25: of the first 100, 70 say yes, so a constant answer scores 70 on them.
    assert task.floors(validation[:100]) == {"always yes": 70.0, "random": 50.0}
    assert len({item.group for item in train}) == 7927
    known = {item.group for item in train}
    assert sum(item.group in known for item in validation) == 954
