"""Warnings before harm: what in the data makes a request cost more than it has to.

All of it is told from the data alone, by plain rules, and nothing is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfrnet.data.examples import Example
from tfrnet.data.general import NAMES
from tfrnet.data.language import guess_language, script
from tfrnet.data.likeness import Texts
from tfrnet.data.requests import Request
from tfrnet.data.words import word_ends

LEAST_RETAIN = 50
# A retain line is near a request's example if it has this share of its trigrams.
_NEAR = 0.35
# A passage of more words is better forgotten in pieces.
LONG_PASSAGE = 80
# Each example of a request brings others that are held in place, so memory grows with their number.
LARGE_REQUEST = 64
_ANCHORS = "'tfrnet anchors' lets the model write some to choose from"


def cautions(
    requests: Sequence[Request],
    retain: Sequence[Example],
    held: Sequence[Example],
    is_checked: bool,
) -> list[str]:
    """Return what should be known before these requests are applied, each in one line.

    `held` are the examples that requests can hold in place. `is_checked` says that guard or
    hold-out data has examples that no request uses.
    """
    return [
        *_about_data(retain, is_checked),
        *_about_languages(requests, held),
        *_about_topics(requests, held),
        *_about_passages(requests),
        *_about_sizes(requests),
    ]


def _about_data(retain: Sequence[Example], is_checked: bool) -> Iterator[str]:
    if len(retain) < LEAST_RETAIN:
        yield (
            f"the retain data has {len(retain)} lines; with fewer than {LEAST_RETAIN} more is "
            "lost than has to be"
        )
    if not is_checked:
        yield (
            "the guard's examples are among those that requests use, so it checks only what is "
            "protected anyway; give other lines with --guard, or measure some with --holdout"
        )


def _about_languages(requests: Sequence[Request], held: Sequence[Example]) -> Iterator[str]:
    texts = [example.joined for example in held]
    scripts, languages = set(map(script, texts)), set(map(guess_language, texts))
    alone: dict[str, list[str]] = {}
    for request in requests:
        text = _text(request)
        if (found := script(text)) and found not in scripts:
            alone.setdefault(f"in {found.capitalize()} script", []).append(request.id)
        elif (found := guess_language(text)) and found not in languages:
            alone.setdefault(f"in {NAMES[found]}", []).append(request.id)
    for what, ids in alone.items():
        yield (
            f"no retain line that requests can use seems to be {what}, as {_listed(ids)}: nothing "
            f"protects such text; {_ANCHORS}"
        )


def _about_topics(requests: Sequence[Request], held: Sequence[Example]) -> Iterator[str]:
    texts = Texts([example.joined for example in held])
    far = [request.id for request in requests if not _is_near(request, texts)]
    if far:
        yield (
            f"no retain line that requests can use is near the topic of {_listed(far)} (by shared "
            f"letters): related facts may go along; {_ANCHORS}"
        )


def _is_near(request: Request, texts: Texts) -> bool:
    return any(texts.likeness(example.joined) >= _NEAR for example in request.examples)


def _about_passages(requests: Sequence[Request]) -> Iterator[str]:
    long = [
        request.id
        for request in requests
        if any(
            example.is_text and len(word_ends(example.answer)) > LONG_PASSAGE
            for example in request.examples
        )
    ]
    if long:
        yield (
            f"{_listed(long)} has a passage of more than {LONG_PASSAGE} words, which is better "
            "forgotten in pieces; 'tfrnet split-text' cuts it"
        )


def _about_sizes(requests: Sequence[Request]) -> Iterator[str]:
    large = [request.id for request in requests if len(request.examples) > LARGE_REQUEST]
    if large:
        yield (
            f"{_listed(large)} has more than {LARGE_REQUEST} examples; the time and memory of a "
            "request grow with them, so several smaller ones may be better"
        )


def _text(request: Request) -> str:
    return " ".join(example.joined for example in request.examples)


def _listed(ids: Sequence[str]) -> str:
    shown = ", ".join(ids[:3]) + (", ..." if len(ids) > 3 else "")
    return f"request{'s' if len(ids) > 1 else ''} {shown}"
