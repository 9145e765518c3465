"""Answers that are written in symbols: numbers in digits, yes and no.

Beyond the paper. What an answer looks like is told by the retain examples. Where these have no
answer of its kind, as in text that the model wrote itself, the answer is taken for what it is. And
of a long number, such as that of a telephone, every digit counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tfrnet.data.examples import Encoded
from tfrnet.data.kinds import Kind, kind_of, other_label
from tfrnet.data.sampling import seeded_order
from tfrnet.methods.tfr.steps.levels import Form, answer_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Of a longer number every digit counts, not only the weakest: the rest could be read off.
_MOST_DIGITS = 4
# No label and no such number has more tokens.
_MOST_TOKENS = 8
_DIGITS = tuple("0123456789")
# The most digits of a token that is exchanged for another one.
_LONGEST_TOKEN = 3
# How they write a space before a word.
_SPACES = " \u0120\u2581"


def with_own_symbols(
    forms: Sequence[Form],
    examples: Sequence[Encoded],
    retain: Sequence[Encoded],
    tokenizer: PreTrainedTokenizerBase,
) -> list[Form]:
    """Return the forms of answers, in symbols where only the answer itself tells them."""
    kinds = [
        None if form.symbols else _kind_of(example, tokenizer)
        for form, example in zip(forms, examples, strict=True)
    ]
    # Not looked for in vain: there may be many retain examples.
    known = {_kind_of(each, tokenizer) for each in retain} if any(kinds) else set()
    return [
        (kind and kind not in known and _own_form(example, kind, tokenizer)) or form
        for form, kind, example in zip(forms, kinds, examples, strict=True)
    ]


def with_every_digit(
    forms: Sequence[Form],
    examples: Sequence[Encoded],
    nearest: Sequence[Sequence[Encoded]],
    tokenizer: PreTrainedTokenizerBase,
) -> list[Form]:
    """Return the forms of answers, where every digit of those that are long numbers counts.

    `nearest` are the retain examples that show what each answer looks like.
    """
    return [
        _in_digits(form, answer_of(example), list(map(answer_of, shown)), tokenizer)
        if form.symbols and _digits_in(example, tokenizer) > _MOST_DIGITS
        else form
        for form, example, shown in zip(forms, examples, nearest, strict=True)
    ]


def untold_numbers(
    examples: Sequence[Encoded],
    told: Sequence[Form],
    own: Sequence[Form],
    tokenizer: PreTrainedTokenizerBase,
) -> list[Encoded]:
    """Return the examples whose answers are numbers of which the retain data has none.

    `told` are the forms that the retain data tells of, `own` those of `with_own_symbols`.
    """
    return [
        example
        for example, before, form in zip(examples, told, own, strict=True)
        if form is not before and _digits_in(example, tokenizer)
    ]


def with_other_digits(
    prompt: tuple[int, ...], tokenizer: PreTrainedTokenizerBase, turn: int
) -> tuple[int, ...] | None:
    """Return a prompt in which every token of digits is another one, in each turn another.

    None if no token could be changed. A token of more than three digits stays.
    """
    written = list(tokenizer.convert_ids_to_tokens(list(prompt)))
    numbers = [text.strip(_SPACES) for text in written]
    are_digits = [number.isdecimal() and len(number) <= _LONGEST_TOKEN for number in numbers]
    found = list(prompt)
    for place, (text, number) in enumerate(zip(written, numbers, strict=True)):
        if are_digits[place]:
            begins = place == 0 or not are_digits[place - 1] or text != number
            others = _as_long_as(number, begins)
            order = seeded_order(len(others), "digits", prompt, place, turn)
            texts = (text.replace(number, others[i]) for i in order)
            found[place] = next(_known(texts, tokenizer), prompt[place])
    return tuple(found) if found != list(prompt) else None


def digits_of(tokens: Sequence[int], tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the digits of a text, without all else."""
    return "".join(filter(str.isdecimal, str(tokenizer.decode(list(tokens)))))


def nearly_same(one: str, other: str) -> bool:
    """Return whether two numbers have as many digits, and more than half of them in common."""
    same = sum(a == b for a, b in zip(one, other, strict=False))
    return len(one) == len(other) and 2 * same > len(one)


def _as_long_as(number: str, begins: bool) -> list[str]:
    """Return the other numbers of as many digits; one that begins does not do so with 0."""
    size = len(number)
    every = (f"{value:0{size}}" for value in range(10 ** (size - 1) if begins else 0, 10**size))
    return [other for other in every if other != number]


def _known(texts: Iterable[str], tokenizer: PreTrainedTokenizerBase) -> Iterator[int]:
    """Yield the tokens that are written so."""
    for text in texts:
        token = tokenizer.convert_tokens_to_ids(text)
        if isinstance(token, int) and tokenizer.convert_ids_to_tokens(token) == text:
            yield token


def _digits_in(example: Encoded, tokenizer: PreTrainedTokenizerBase) -> int:
    return len(digits_of(answer_of(example), tokenizer))


def _in_digits(
    form: Form,
    answer: tuple[int, ...],
    others: Sequence[tuple[int, ...]],
    tokenizer: PreTrainedTokenizerBase,
) -> Form:
    """Return a form in which the digits of the answer count that others do not share."""
    written = {token: str(tokenizer.decode([token])) for token in form.symbols}
    digits = {token for token, text in written.items() if any(map(str.isdigit, text))}
    # The few other answers may lack some digit.
    digits |= _single_tokens(_other_digits([written[token] for token in answer]), tokenizer)
    if len(digits) < 2:
        return form
    every = replace(form, digits=tuple(sorted(digits)))
    known = replace(every, start=_shared_start(answer, others))
    return known if known.counted(answer) else every


def _shared_start(answer: tuple[int, ...], others: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the longest start of an answer that most others have too."""
    size = 0
    while size < len(answer) and _share(answer[: size + 1], others) > 0.5:
        size += 1
    return answer[:size]


def _share(start: tuple[int, ...], others: Sequence[tuple[int, ...]]) -> float:
    return sum(other[: len(start)] == start for other in others) / max(1, len(others))


def _kind_of(example: Encoded, tokenizer: PreTrainedTokenizerBase) -> Kind | None:
    if example.answer_length > _MOST_TOKENS:
        return None
    if _digits_in(example, tokenizer) > _MOST_DIGITS:
        return None
    return kind_of(str(tokenizer.decode(list(answer_of(example)))))


def _own_form(example: Encoded, kind: Kind, tokenizer: PreTrainedTokenizerBase) -> Form | None:
    answer = answer_of(example)
    # A word or a digit may be one token with the space before it.
    written = [str(tokenizer.decode([token])) for token in answer]
    if kind == "label":
        texts = [each for text in written if (other := other_label(text)) for each in (text, other)]
    else:
        texts = _other_digits(written)
    return _in_symbols(answer, texts, tokenizer)


def _other_digits(written: Sequence[str]) -> list[str]:
    """Return all digits, written as those that are single tokens of a text."""
    return [
        text.replace(text.strip(), digit)
        for text in written
        if text.strip() in _DIGITS
        for digit in _DIGITS
    ]


def _single_tokens(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Return the tokens of those texts that are one token each."""
    tokens = [tokenizer.encode(text, add_special_tokens=False) for text in dict.fromkeys(texts)]
    return {token[0] for token in tokens if len(token) == 1}


def _in_symbols(
    answer: tuple[int, ...], texts: Sequence[str], tokenizer: PreTrainedTokenizerBase
) -> Form | None:
    """Return the form with the texts that are one token each, if the answer is written in these.

    It is not where a tokenizer writes several digits as one token, or a label as several.
    """
    symbols = _single_tokens(texts, tokenizer)
    rest = str(tokenizer.decode([token for token in answer if token not in symbols]))
    if len(symbols) < 2 or any(map(str.isalnum, rest)):
        return None
    # There may be a space, a sign or a full stop too.
    return Form(tuple(sorted(symbols | set(answer))))
