"""Which prompt each row of a forward pass answers, for methods that act differently on each.

A row of tokens does not say where its prompt ends, and a row that goes on from stored keys and
values does not even hold it. Whoever knows the prompts says so around the pass; most methods never
ask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

Prompts = Sequence[Sequence[int]]

_prompts: ContextVar[Prompts | None] = ContextVar("prompts", default=None)


@contextmanager
def rows_answer(prompts: Prompts) -> Iterator[None]:
    """Say which prompt, as token ids, each row of the passes in this block belongs to."""
    token = _prompts.set(prompts)
    try:
        yield
    finally:
        _prompts.reset(token)


def known_prompts() -> Prompts | None:
    """Return the prompts of the rows of the present pass, if somebody has said them."""
    return _prompts.get()
