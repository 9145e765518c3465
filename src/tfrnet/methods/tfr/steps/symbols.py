"""Answers that are written in symbols by themselves: numbers in digits, yes and no.

Beyond the paper. What an answer looks like is told by the retain examples. Where these have no
answer of its kind, as in text that the model wrote itself, the answer is taken for what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfrnet.data.examples import Encoded
from tfrnet.data.kinds import Kind, kind_of, other_label
from tfrnet.methods.tfr.steps.levels import Form, answer_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Of a longer number, such as that of a telephone, every digit counts, not only the weakest.
_MOST_DIGITS = 4
# No label and no such number has more tokens.
_MOST_TOKENS = 8
_DIGITS = tuple("0123456789")


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


def _kind_of(example: Encoded, tokenizer: PreTrainedTokenizerBase) -> Kind | None:
    if example.answer_length > _MOST_TOKENS:
        return None
    text = str(tokenizer.decode(list(answer_of(example))))
    return kind_of(text) if sum(map(str.isdigit, text)) <= _MOST_DIGITS else None


def _own_form(example: Encoded, kind: Kind, tokenizer: PreTrainedTokenizerBase) -> Form | None:
    answer = answer_of(example)
    # A word or a digit may be one token with the space before it.
    written = [str(tokenizer.decode([token])) for token in answer]
    if kind == "label":
        texts = [each for text in written if (other := other_label(text)) for each in (text, other)]
    else:
        texts = [
            text.replace(text.strip(), digit)
            for text in written
            if text.strip() in _DIGITS
            for digit in _DIGITS
        ]
    return _in_symbols(answer, list(dict.fromkeys(texts)), tokenizer)


def _in_symbols(
    answer: tuple[int, ...], texts: Sequence[str], tokenizer: PreTrainedTokenizerBase
) -> Form | None:
    """Return the form with the texts that are one token each, if the answer is written in these.

    It is not where a tokenizer writes several digits as one token, or a label as several.
    """
    tokens = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    symbols = {token[0] for token in tokens if len(token) == 1}
    rest = str(tokenizer.decode([token for token in answer if token not in symbols]))
    if len(symbols) < 2 or any(map(str.isalnum, rest)):
        return None
    # There may be a space, a sign or a full stop too.
    return Form(tuple(sorted(symbols | set(answer))))
