import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tests import tiny
from tfrnet.data.examples import Encoded, Example, batches, encode
from tfrnet.errors import InputError

TOKENIZER = tiny.make_tokenizer()


def tokens(text):
    return TOKENIZER(text)["input_ids"]


@pytest.mark.parametrize(
    ("prompt", "answer", "joined"),
    [
        ("The box is", "red", "The box is red"),
        ("The box is ", "red", "The box is red"),
        ("The box is", " red", "The box is red"),
        ("The box is\n", "red", "The box is\nred"),
        ("", "red", "red"),
    ],
)
def test_one_space_joins_where_none_is(prompt, answer, joined):
    assert Example(prompt, answer).joined == joined


@pytest.mark.parametrize("prompt", ["Item 4 of the old box is", "Item 4 of the old box is  "])
def test_answer_tokens_are_what_follows_the_stripped_prompt_in_one_encoding(prompt):
    example = Example(prompt, "green blue 7")
    encoded = encode(example, TOKENIZER, 64)
    assert list(encoded.ids) == tokens(example.joined)
    assert encoded.answer_start == len(tokens("Item 4 of the old box is"))
    answer = TOKENIZER.decode(encoded.ids[encoded.answer_start :])
    assert answer.strip() == "green blue 7"
    assert answer.startswith(" ")


def test_plain_text_scores_all_tokens_after_the_first():
    encoded = encode(Example("", "green blue box", is_text=True), TOKENIZER, 64)
    assert encoded.answer_start == 1
    assert encoded.answer_length == len(tokens("green blue box")) - 1


def test_with_a_bos_token_the_whole_text_is_scored():
    from tokenizers.processors import TemplateProcessing

    backend = TOKENIZER.backend_tokenizer.from_str(TOKENIZER.backend_tokenizer.to_str())
    backend.post_processor = TemplateProcessing(single="<eos> $A", special_tokens=[("<eos>", 0)])
    with_bos = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<eos>")
    encoded = encode(Example("", "green blue box", is_text=True), with_bos, 64)
    assert encoded.answer_length == len(tokens("green blue box"))
    qa = encode(Example("Item 4 is", "red"), with_bos, 64)
    assert qa.answer_start == 1 + len(tokens("Item 4 is"))


def test_an_over_long_prompt_loses_its_beginning_and_never_its_answer():
    example = Example("very " * 40 + "old box is", "green blue 7")
    whole = tokens(example.joined)
    encoded = encode(example, TOKENIZER, 20)
    assert list(encoded.ids) == whole[-20:]
    assert encoded.answer_length == len(whole) - len(tokens(example.prompt))


def test_an_answer_that_does_not_fit_is_an_error_with_both_numbers():
    with pytest.raises(InputError, match=r"line 3: the answer has \d+ tokens, but max_length 8"):
        encode(Example("box", "green blue " * 12), TOKENIZER, 8, "line 3")
    with pytest.raises(InputError, match="the text has"):
        encode(Example("", "green blue " * 12, is_text=True), TOKENIZER, 8)


def test_an_answer_without_tokens_is_an_error():
    with pytest.raises(InputError, match="no token of its own"):
        encode(Example("", "x", is_text=True), TOKENIZER, 8)


def test_a_prompt_that_ends_with_eos_itself_keeps_it():
    encoded = encode(Example("Item 1<eos>", "red"), TOKENIZER, 64)
    assert encoded.answer_start == len(tokens("Item 1<eos>"))
    assert TOKENIZER.decode(encoded.ids[encoded.answer_start :]).strip() == "red"


def test_an_empty_prompt_counts_as_one_token_to_follow_on():
    encoded = encode(Example("", "red"), TOKENIZER, 64)
    assert encoded.ids == (TOKENIZER.eos_token_id, *tokens("red"))
    assert encoded.answer_length == len(tokens("red"))


def test_batches_group_by_length_and_hold_everything_once():
    lengths = [5, 30, 6, 29, 7, 5]
    rows = [Encoded(tuple(range(n)), n - 2) for n in lengths]
    groups = batches(rows, 2)
    assert groups == [[0, 5], [2, 4], [3, 1]]


def test_batches_are_cut_where_logits_would_be_too_many():
    rows = [Encoded(tuple(range(40)), 10) for _ in range(5)]
    assert [len(g) for g in batches(rows, 8, max_answer_tokens=70)] == [2, 2, 1]
    assert [len(g) for g in batches(rows, 8, max_answer_tokens=10)] == [1] * 5


@pytest.mark.real
def test_boundary_on_the_real_tokenizer():
    from tfrnet.models.load import model_folder

    tokenizer = AutoTokenizer.from_pretrained(model_folder("smollm2-135m"))
    encoded = encode(Example("The capital of France is ", "Paris"), tokenizer, 64)
    assert [tokenizer.decode(i) for i in encoded.ids[encoded.answer_start :]] == [" Paris"]
