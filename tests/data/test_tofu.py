import pytest

from tests import tiny
from tests.datasets import made_up_folder, needs_real, real_source, tofu_rows, write_lines
from tfrnet.core.errors import InputError
from tfrnet.data.examples import Example
from tfrnet.data.sources import Source
from tfrnet.data.tofu import SPLITS, encode_answer, load_tofu, tofu_example, tofu_prompt


@pytest.mark.parametrize("split", SPLITS)
def test_every_split_is_read(split, tmp_path):
    rows = load_tofu(split, Source("folder", made_up_folder(tmp_path)))
    assert rows
    wrong = {"real_authors_perturbed": 3, "world_facts_perturbed": 3}.get(split, 5)
    for row in rows:
        assert len(row.wrong_answers) == (wrong if split.endswith("_perturbed") else 0)


def test_the_paraphrase_stands_for_the_answer_where_there_is_one(tmp_path):
    source = Source("folder", made_up_folder(tmp_path))
    assert load_tofu("retain_perturbed", source)[0].right_answer().startswith("It was kept")
    assert load_tofu("world_facts_perturbed", source)[0].right_answer().startswith("Author 300")


def test_unknown_splits_and_empty_texts_are_refused(tmp_path):
    with pytest.raises(InputError, match="TOFU has no split 'forget20'; it has full, forget01"):
        load_tofu("forget20", Source("folder", tmp_path))
    write_lines(tmp_path / "tofu" / "full.jsonl", [tofu_rows(1)[0] | {"answer": " "}])
    with pytest.raises(InputError, match="tofu/full/0: a question or answer is empty"):
        load_tofu("full", Source("folder", tmp_path))


def test_the_end_of_the_text_is_the_last_scored_token():
    tokenizer = tiny.make_tokenizer()
    for boundary in ("open-unlearning", "answer"):
        encoded = encode_answer("Question: a?\nAnswer: ", "red", tokenizer, 64, "x", boundary)
        assert encoded.ids[-1] == tokenizer.eos_token_id
        assert encoded.ids[:-1] == tuple(tokenizer("Question: a?\nAnswer: red")["input_ids"])


def test_the_two_boundaries_differ_by_the_token_that_takes_the_space():
    tokenizer = tiny.make_tokenizer()
    prompt = "Item of the box is "
    whole = tokenizer(prompt + "red 7")["input_ids"]
    alone = tokenizer(prompt)["input_ids"]
    joined = whole[len(alone) - 1] != alone[-1]
    assert joined, "the test needs a tokenizer that joins the space with the word"
    theirs = encode_answer(prompt, "red 7", tokenizer, 64, "x", "open-unlearning")
    ours = encode_answer(prompt, "red 7", tokenizer, 64, "x", "answer")
    assert theirs.answer_start == len(alone)
    assert ours.answer_start == len(alone) - 1


def test_an_answer_that_does_not_fit_is_refused():
    tokenizer = tiny.make_tokenizer()
    with pytest.raises(InputError, match=r"row 3: \d+ tokens do not fit into max_length 8"):
        encode_answer("Question: a?\nAnswer: ", "red " * 9, tokenizer, 8, "row 3")


def test_nothing_is_put_between_a_prompt_and_its_answer():
    """Some chat templates end without white space."""
    assert tofu_example("[INST] Who? [/INST]", "Ada").joined == "[INST] Who? [/INST]Ada"
    assert tofu_example("Question: Who?\nAnswer: ", "Ada") == Example(
        "Question: Who?\nAnswer: ", "Ada"
    )


def test_a_chat_template_is_used_where_there_is_one():
    tokenizer = tiny.make_tokenizer()
    with pytest.raises(InputError, match="no chat template"):
        tofu_prompt("Who?", tokenizer, "chat")


@needs_real
def test_the_real_splits_relate_as_described():
    rows = {split: load_tofu(split, real_source()) for split in SPLITS}
    assert [len(rows[s]) for s in ("full", "forget10", "retain90", "holdout10")] == [
        4000,
        400,
        3600,
        400,
    ]
    assert rows["full"] == rows["retain90"] + rows["forget10"]
    questions = {row.question for row in rows["full"]}
    assert questions.isdisjoint(row.question for row in rows["holdout10"])
    assert [row.question for row in rows["forget10_perturbed"]] == [
        row.question for row in rows["forget10"]
    ]
