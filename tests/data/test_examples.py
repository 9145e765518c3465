import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tests import tiny
from tfrnet.core.errors import InputError
from tfrnet.data.examples import Encoded, Example, encode, longest_choice, with_answer, with_eos

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
    with pytest.raises(InputError, match="adds no token to the prompt"):
        encode(Example("", "x", is_text=True), TOKENIZER, 8)


def test_a_prompt_that_ends_with_eos_itself_keeps_it():
    encoded = encode(Example("Item 1<eos>", "red"), TOKENIZER, 64)
    assert encoded.answer_start == len(tokens("Item 1<eos>"))
    assert TOKENIZER.decode(encoded.ids[encoded.answer_start :]).strip() == "red"


def test_an_empty_prompt_counts_as_one_token_to_follow_on():
    encoded = encode(Example("", "red"), TOKENIZER, 64)
    assert encoded.ids == (TOKENIZER.eos_token_id, *tokens("red"))
    assert encoded.answer_length == len(tokens("red"))


@pytest.mark.real
def test_boundary_on_the_real_tokenizer():
    from tfrnet.models.load import model_folder

    tokenizer = AutoTokenizer.from_pretrained(model_folder("smollm2-135m"))
    encoded = encode(Example("The capital of France is ", "Paris"), tokenizer, 64)
    assert [tokenizer.decode(i) for i in encoded.ids[encoded.answer_start :]] == [" Paris"]


def _numbers(text):
    return [int(word) for word in text.split()]


class _WordTokenizer:
    """One token a number, for vectors given as token ids; BOS is 99 where it is wanted."""

    eos_token_id = None
    bos_token = "<s>"

    def __init__(self, bos: bool = False) -> None:
        self.bos_token_id = 99
        self.bos = bos

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": [99] * (self.bos and add_special_tokens) + _numbers(text)}


def test_truncation_as_in_the_harness():
    """V5: context 0..9, continuation 10, 11, max_length 8."""
    example = Example("0 1 2 3 4 5 6 7 8 9", "10 11")
    encoded = encode(example, _WordTokenizer(), 8, truncation="lm_eval")
    assert encoded.ids[:-1] == (3, 4, 5, 6, 7, 8, 9, 10)
    targets = {p - 1: encoded.ids[p] for p in range(encoded.answer_start, len(encoded.ids))}
    assert targets == {6: 10, 7: 11}
    assert encoded.cut == 3


@pytest.mark.parametrize(("length", "cut"), [(257, 0), (258, 1)])
def test_the_harness_cuts_beyond_one_token_more_than_max_length(length, cut):
    prompt = " ".join(map(str, range(length - 1)))
    encoded = encode(Example(prompt, "7"), _WordTokenizer(), 256, truncation="lm_eval")
    assert encoded.cut == cut


def test_our_truncation_keeps_bos_and_the_whole_length_within_max_length():
    example = Example("0 1 2 3 4 5 6 7 8 9", "10 11")
    encoded = encode(example, _WordTokenizer(bos=True), 8)
    assert encoded.ids == (99, 5, 6, 7, 8, 9, 10, 11)
    assert encoded.answer_start == 6
    assert encode(example, _WordTokenizer(bos=True), 8, truncation="lm_eval").ids[0] == 3


@pytest.mark.parametrize("passage", [None, (0, 19)])
def test_a_cut_prompt_does_not_tell_which_answer_is_right(passage):
    tokenizer, prompt, answers = _WordTokenizer(bos=True), "0 1 2 3 4 5 6 7 8 9", ("10", "11 12 13")
    longest = longest_choice(prompt, answers, tokenizer)
    encoded = [
        encode(Example(prompt, answer), tokenizer, 8, passage=passage, longest=longest)
        for answer in answers
    ]
    assert encoded[0].ids == (99, 6, 7, 8, 9, 10)
    assert encoded[1].ids == (99, 6, 7, 8, 9, 11, 12, 13)
    assert {row.cut for row in encoded} == {6}


def test_an_answer_stays_whole_where_another_cannot_fit():
    encoded = encode(Example("0 1 2 3", "4 5"), _WordTokenizer(bos=True), 8, longest=30)
    assert encoded.ids == (99, 4, 5)


def test_a_prompt_with_room_for_every_answer_is_not_cut():
    assert encode(Example("0 1 2 3", "4"), _WordTokenizer(bos=True), 8, longest=8).cut == 0


def test_wrong_answers_of_a_request_cut_nothing():
    example = Example("0 1 2 3", "4", wrong_answers=("7 " * 30,))
    assert encode(example, _WordTokenizer(bos=True), 8).cut == 0


def test_a_passage_in_the_middle_loses_its_beginning_and_nothing_else():
    prompt = "70 71 1 2 3 4 5 80 81"
    start, end = prompt.index("1 2"), prompt.index(" 80")
    encoded = encode(Example(prompt, "9"), _WordTokenizer(bos=True), 8, passage=(start, end))
    assert encoded.ids == (99, 70, 71, 4, 5, 80, 81, 9)
    with pytest.raises(InputError, match="it is longer than max_length"):
        encode(Example(prompt, "9"), _WordTokenizer(bos=True), 5, passage=(start, end))


def test_a_text_that_brings_its_own_bos_gets_no_second_one():
    class Chat(_WordTokenizer):
        def __call__(self, text, add_special_tokens=True):
            return super().__call__(text.replace("<s>", "99 "), add_special_tokens)

    encoded = encode(Example("<s>1 2", "3"), Chat(bos=True), 8)
    assert encoded.ids == (99, 1, 2, 3)


def _llama_pieces():
    """A tokenizer with LLaMA's ids for the pieces that the boundary vectors need."""
    from tokenizers import Tokenizer, models, normalizers
    from transformers import PreTrainedTokenizerFast

    pieces = {
        "▁Answer": 673,
        ":": 29901,
        "▁yes": 4874,
        "▁no": 694,
        "▁": 29871,
        "▁▁": 259,
        "▁-": 448,
        "1": 29896,
        "3": 29941,
        "4": 29946,
        "5": 29945,
    }
    names = {number: piece for piece, number in pieces.items()}
    vocabulary = [(names.get(i, f"<unused{i}>"), -1.0) for i in range(max(pieces.values()) + 1)]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=0))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@pytest.mark.parametrize(
    ("prompt", "answer", "context", "continuation"),
    [
        ("Answer:", " yes", [673, 29901], [4874]),
        ("Answer:", " no", [673, 29901], [694]),
        ("Answer: ", "143", [673, 29901], [29871, 29896, 29946, 29941]),
        ("Answer:", " -55", [673, 29901], [448, 29945, 29945]),
    ],
)
def test_context_and_continuation_meet_where_llama_pieces_do(prompt, answer, context, continuation):
    """V4; tokenised on its own, ' yes' would be two pieces and ' 143' would begin with another."""
    tokenizer = _llama_pieces()
    encoded = encode(Example(prompt, answer), tokenizer, 64)
    assert list(encoded.ids[: encoded.answer_start]) == context
    assert list(encoded.ids[encoded.answer_start :]) == continuation
    assert tokenizer(" yes")["input_ids"] == [29871, 4874]
    assert tokenizer(" 143")["input_ids"] == [259, 29896, 29946, 29941]


def test_the_end_of_the_text_is_added_once(tokenizer):
    once = with_eos(encode(Example("Item", "red"), tokenizer, 32), tokenizer)
    assert once.ids[-1] == tokenizer.eos_token_id
    assert with_eos(once, tokenizer) == once


@pytest.mark.parametrize(
    ("prompt", "answer"), [("The bo", "x is red"), ("Item 1", "2 of the box"), ("The ", "box")]
)
def test_a_token_that_prompt_and_answer_share_is_the_answers(prompt, answer):
    encoded = encode(Example(prompt, answer, join=""), TOKENIZER, 64)
    assert list(encoded.ids) == tokens(prompt + answer)
    context = TOKENIZER.decode(encoded.ids[: encoded.answer_start], skip_special_tokens=True)
    scored = TOKENIZER.decode(encoded.ids[encoded.answer_start :], skip_special_tokens=True)
    assert prompt.startswith(context)
    assert scored.endswith(answer)


@pytest.mark.parametrize("bos", [None, 1], ids=["no BOS", "BOS"])
def test_another_answer_takes_the_beginning_of_the_prompt_but_never_all_of_it(bos):
    example = Encoded((1, 2, 3, 4, 9), 4)
    assert with_answer(example, (7, 8), 6, bos) == Encoded((1, 2, 3, 4, 7, 8), 4)
    left = (1, 4) if bos else (3, 4)
    assert with_answer(example, (7, 8), 4, bos) == Encoded((*left, 7, 8), 2, 2)
    with pytest.raises(ValueError, match="an answer of 4 tokens leaves no room for a prompt"):
        with_answer(example, (5, 6, 7, 8), 4, bos)
