"""The prompt of each row in a forward pass, for methods whose effect depends on the prompt.

A row of tokens does not show where its prompt ends, and a row that continues from cached keys and
values does not even contain it. So the caller sets the prompts around the pass; most methods do not
need them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

Prompts = Sequence[Sequence[int]]

_prompts: ContextVar[Prompts | None] = ContextVar("prompts", default=None)


@contextmanager
def rows_answer(prompts: Prompts) -> Iterator[None]:
    """Set the prompt, as token ids, of each row of the passes in this block."""
    token = _prompts.set(prompts)
    try:
        yield
    finally:
        _prompts.reset(token)


def known_prompts() -> Prompts | None:
    """Return the prompts of the rows of the current pass, or None if they were not set."""
    return _prompts.get()
