"""Examples and their tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from tfrnet.core.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Truncation = Literal["passage_left", "lm_eval"]

# A text of no more tokens after the first says too little to be compared as a whole.
_FEW = 2


@dataclass(frozen=True)
class Example:
    """A prompt with its answer, or (empty prompt, `is_text`) a plain text.

    `join` stands between prompt and answer, unless there is white space already. `wrong_answers`
    are other answers to the prompt, if some are known; a method may compare the answer with them,
    or put one in its place. `group` is the kind of knowledge that it belongs to; of guard examples
    each group is judged for itself. Neither these nor `line`, the line in the file, count in
    comparisons.
    """

    prompt: str
    answer: str
    is_text: bool = False
    join: str = " "
    line: int = field(default=0, compare=False)
    wrong_answers: tuple[str, ...] = field(default=(), compare=False)
    group: str = field(default="", compare=False)

    @property
    def joined(self) -> str:
        """The example as one string."""
        if not self.prompt or self.prompt[-1].isspace() or self.answer[:1].isspace():
            return self.prompt + self.answer
        return f"{self.prompt}{self.join}{self.answer}"

    def to_dict(self) -> dict[str, Any]:
        """Return the example as in a JSON Lines file."""
        wrong = {"wrong_answers": list(self.wrong_answers)} if self.wrong_answers else {}
        return self.words() | wrong | ({"group": self.group} if self.group else {})

    def words(self) -> dict[str, str]:
        """Return what the example says, without what may be known besides."""
        if self.is_text:
            return {"text": self.answer}
        joined = {} if self.join == " " else {"join": self.join}  # digests of before have no such
        return {"prompt": self.prompt, "answer": self.answer} | joined


def wrong_examples(example: Example) -> list[Example]:
    """Return an example's prompt with each of the wrong answers that it names."""
    return [replace(example, answer=each, wrong_answers=()) for each in example.wrong_answers]


@dataclass(frozen=True)
class Encoded:
    """Token ids of one example; the loss is on `ids[answer_start:]`. `cut` tokens were cut off."""

    ids: tuple[int, ...]
    answer_start: int
    cut: int = 0

    @property
    def answer_length(self) -> int:
        """Number of answer tokens."""
        return len(self.ids) - self.answer_start

    @property
    def is_passage(self) -> bool:
        """Whether all but the first token is to be predicted, and that is more than a few."""
        return self.answer_start == 1 and self.answer_length > _FEW


def encode(
    example: Example,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    label: str = "example",
    truncation: Truncation = "passage_left",
    passage: tuple[int, int] | None = None,
    longest: int = 0,
) -> Encoded:
    """Tokenise an example as one string and split it into prompt and answer tokens.

    White space at the end of the prompt belongs to the answer, so that the answer's first token is
    the one a model would produce. An example of more than `max_length` tokens loses the start of
    its passage (a pair of character positions in the prompt), or of the prompt if it has none, but
    never BOS. If the answer is one of several, give the tokens of the prompt with the longest of
    them, so that the cut is the same for all: else the length of what is left would tell which it
    is. `lm_eval` cuts as lm-evaluation-harness does: the model's input, without the last token,
    keeps its last `max_length` tokens, with or without BOS.
    """
    ids = tokenise(example.joined, tokenizer)
    context = example.prompt.rstrip()
    context_ids = tokenise(context, tokenizer) if context else []
    if context_ids and context_ids[-1] == tokenizer.eos_token_id != ids[len(context_ids) - 1]:
        # A tokenizer that ends every text with EOS ends the prompt with one too.
        context_ids.pop()
    if not example.join:
        # Letters of the prompt and of the answer may share a token; that one is the answer's.
        pairs = zip(context_ids, ids, strict=False)
        context_ids = context_ids[: next((i for i, (a, b) in enumerate(pairs) if a != b), None)]
    if not context and not example.is_text:
        ids = _with_prefix(ids, tokenizer)
    # The very first token has nothing to be predicted from.
    answer_start = max(len(context_ids), 1)
    answer_length = len(ids) - answer_start
    if answer_length < 1:
        raise InputError(
            f"{label}: the answer adds no token to the prompt, so it cannot be scored; give a "
            "longer answer"
        )
    room = max_length - 1 if truncation == "passage_left" else max_length
    if answer_length > room:
        what = "text" if example.is_text else "answer"
        raise InputError(
            f"{label}: the {what} has {answer_length} tokens, but max_length {max_length} leaves "
            f"room for {room}; split it, or raise max_length within the model's context"
        )
    surplus = max(0, answer_start + answer_length - room - 1)
    if truncation == "passage_left":
        surplus = max(surplus, min(longest - max_length, answer_start - 1))
    first = 0
    if surplus and truncation == "passage_left":
        first = _cut_from(example, ids, tokenizer, surplus, max_length, passage, label)
    return Encoded(tuple(ids[:first] + ids[first + surplus :]), answer_start - surplus, surplus)


def with_answer(
    example: Encoded, answer: tuple[int, ...], max_length: int, bos: int | None
) -> Encoded:
    """Return an example's prompt with another answer, cut as `encode` cuts what is too long.

    The answer must be shorter than the maximum length, so that some of the prompt is left.
    """
    start = example.answer_start
    surplus = max(0, start + len(answer) - max_length)
    first = int(example.ids[0] == bos)
    if surplus >= start:
        raise ValueError(f"an answer of {len(answer)} tokens leaves no room for a prompt")
    prompt = example.ids[:first] + example.ids[first + surplus : start]
    return Encoded(prompt + answer, start - surplus, example.cut + surplus)


def longest_choice(prompt: str, choices: Iterable[str], tokenizer: PreTrainedTokenizerBase) -> int:
    """Return how many tokens a prompt has with the longest of some answers."""
    return max(len(tokenise(Example(prompt, each).joined, tokenizer)) for each in choices)


def _cut_from(
    example: Example,
    ids: list[int],
    tokenizer: PreTrainedTokenizerBase,
    surplus: int,
    max_length: int,
    passage: tuple[int, int] | None,
    label: str,
) -> int:
    """Return the first token that may be cut; a passage must be long enough to lose the surplus."""
    if passage is None or passage[0] == 0:
        first = int(ids[0] == tokenizer.bos_token_id)
    else:
        first = len(tokenise(example.prompt[: passage[0]], tokenizer))
    if passage and first + surplus > len(tokenise(example.prompt[: passage[1]], tokenizer)):
        raise InputError(
            f"{label}: it is longer than max_length {max_length} even without its passage; raise "
            "max_length"
        )
    return first


def tokenise(text: str, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Tokenise a text; one that starts with BOS, as from a chat template, gets no second BOS."""
    has_bos = bool(tokenizer.bos_token) and text.startswith(tokenizer.bos_token)
    ids: list[int] = tokenizer(text, add_special_tokens=not has_bos)["input_ids"]
    return ids


def with_eos(encoded: Encoded, tokenizer: PreTrainedTokenizerBase) -> Encoded:
    """Return the example with the end of the text as its last answer token."""
    if tokenizer.eos_token_id is None:
        raise InputError(
            "the tokenizer has no end-of-text token, which must follow every answer here"
        )
    if encoded.ids[-1] == tokenizer.eos_token_id:
        return encoded
    return replace(encoded, ids=(*encoded.ids, tokenizer.eos_token_id))


def _with_prefix(ids: list[int], tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Put BOS, or else EOS, before an answer without a prompt."""
    options = (tokenizer.bos_token_id, tokenizer.eos_token_id)
    prefix = next((token for token in options if token is not None), None)
    return ids if prefix is None or ids[:1] == [prefix] else [prefix, *ids]


def encode_all(
    examples: Iterable[Example],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    label: str,
) -> list[Encoded]:
    """Encode examples; an error names the one at fault."""
    return [
        encode(example, tokenizer, max_length, f"{label}, {_place(example, number)}")
        for number, example in enumerate(examples, start=1)
    ]


def tokens_apart(examples: Iterable[Encoded], others: Iterable[Encoded]) -> list[Encoded]:
    """Return the examples whose tokens are not those of one of the others."""
    known = {other.ids for other in others}
    return [example for example in examples if example.ids not in known]


def _place(example: Example, number: int) -> str:
    return f"line {example.line}" if example.line else f"example {number}"
