"""The prompts whose answers are shown in words, before and after a request."""

from __future__ import annotations

from tfrnet.audit.probe import spread
from tfrnet.data.requests import Request
from tfrnet.data.words import word_ends

_SHOWN = 3
_FIRST_WORDS = 6


def shown_prompts(request: Request) -> list[str]:
    """Return a few prompts of a request; of a passage its first words."""
    found = []
    for example in spread(request.examples, _SHOWN):
        if not example.is_text:
            found.append(example.prompt)
            continue
        ends = word_ends(example.answer)
        found.append(example.answer[: ends[min(_FIRST_WORDS, max(len(ends) // 2, 1)) - 1]])
    return [prompt for prompt in found if prompt.strip()]
