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

# A longer answer is no number and no label.
_LONGEST = 24
_DIGITS = tuple("0123456789")


def kinds_among(examples: Sequence[Encoded], tokenizer: PreTrainedTokenizerBase) -> set[Kind]:
    """Return the kinds of the answers of some examples."""
    short = {answer_of(e) for e in examples if e.answer_length <= _LONGEST}
    found = {kind_of(str(tokenizer.decode(list(answer)))) for answer in short}
    return {kind for kind in found if kind}


def own_form(example: Encoded, tokenizer: PreTrainedTokenizerBase, known: set[Kind]) -> Form | None:
    """Return the form of an answer whose kind is not among the known ones, if it is in symbols."""
    answer = answer_of(example)
    if len(answer) > _LONGEST:
        return None
    text = str(tokenizer.decode(list(answer)))
    kind = kind_of(text)
    if kind is None or kind in known:
        return None
    if kind == "label":
        other = other_label(text)
        return _in_symbols(answer, [text, other or text], tokenizer)
    # A digit may be one token with the space before it.
    written = {str(tokenizer.decode([token])) for token in answer}
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
    # Before digits there may be a space or a sign.
    return Form(tuple(sorted(symbols | set(answer))))
