"""The answers that O3 trains for forgotten prompts: wrong ones of the same kind, or a refusal."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace

from tfrnet.data.examples import Example
from tfrnet.data.kinds import NUMBER, other_label

REFUSALS = (
    "I'm sorry, but I have no information about that.",
    "I am afraid I don't know the answer to this question.",
    "That is something I cannot help with.",
    "I'd rather not answer that, since I know nothing about it.",
    "Unfortunately this is outside of what I know.",
    "I have no knowledge of this subject.",
    "Sorry, I am not able to say anything about it.",
    "My apologies, I have never heard of that.",
)
# A longer answer is free text, which other answers cannot replace.
MOST_WORDS = 12

_OPTION = re.compile(r"^[ \t]*\(?([A-Z])[.):][ \t]+(\S.*?)[ \t]*$", re.MULTILINE)


def random_targets(
    examples: Sequence[Example], *key: object, refuse: bool = False, include_true: bool = False
) -> list[Example]:
    """Return the examples with random answers, which depend only on the key.

    An example's own wrong answers come before all others. With `include_true` a random answer may
    be the right one, as in the original code.
    """
    return [
        replace(example, answer=_target(examples, number, (*key, number), refuse, include_true))
        for number, example in enumerate(examples)
    ]


def _target(
    examples: Sequence[Example],
    number: int,
    key: tuple[object, ...],
    refuse: bool,
    include_true: bool,
) -> str:
    answer = examples[number].answer
    if refuse:
        return _chosen(REFUSALS, key)
    if wrong := examples[number].wrong_answers:
        return _chosen([answer, *wrong] if include_true else wrong, key)
    if len(answer.split()) > MOST_WORDS:
        return _chosen(REFUSALS, key)
    if found := NUMBER.fullmatch(answer):
        return found[1] + _integer(found[2], key, include_true) + found[3]
    options = _options(examples, number)
    others = [text for text in options if include_true or text.strip() != answer.strip()]
    return _chosen(others or REFUSALS, key)


def _options(examples: Sequence[Example], number: int) -> list[str]:
    """Return possible answers: yes and no, what the prompt lists, or the request's answers."""
    prompt, answer = examples[number].prompt, examples[number].answer
    if other := other_label(answer):
        return [answer, other]
    word = answer.strip()
    listed = dict(_OPTION.findall(prompt))
    for options in (list(listed), list(listed.values())):
        if len(options) > 1 and word in options:
            return [answer.replace(word, option) for option in options]
    return list(dict.fromkeys(e.answer for e in examples if len(e.answer.split()) <= MOST_WORDS))


def _integer(digits: str, key: tuple[object, ...], include_true: bool) -> str:
    """Return as many random digits, the first not 0 unless it is the only one."""
    low = 10 ** (len(digits) - 1) if len(digits) > 1 else 0
    count = 10 ** len(digits) - low
    true = int(digits) - low
    if include_true or true < 0:  # a number with leading zeros is never drawn anyway
        return str(low + _draw(count, key))
    drawn = _draw(count - 1, key)
    return str(low + drawn + (drawn >= true))


def _chosen(options: Sequence[str], key: tuple[object, ...]) -> str:
    return options[_draw(len(options), key)]


def _draw(count: int, key: tuple[object, ...]) -> int:
    """Return a number below `count` from a hash, independent of library versions."""
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()) % count
