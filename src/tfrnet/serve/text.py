"""Tokens as text while they come: whole characters only, and nothing of a stop word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# What a tokenizer puts for bytes that are no whole character yet.
_INCOMPLETE = "\ufffd"


class TextStream:
    """The text of one answer, in pieces that are certain."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stop = [word for word in stop if word]
        self._tokens: list[int] = []
        # A token's text can depend on the one before it, so decoding begins a little earlier.
        self._context, self._read = 0, 0
        self._held = ""
        self.stopped = False

    def add(self, token: int) -> str:
        """Take a token and return the text that is certain now."""
        self._tokens.append(token)
        known = self._decoded(self._context, self._read)
        text = self._decoded(self._context, len(self._tokens))
        if text.endswith(_INCOMPLETE) or len(text) <= len(known):
            return ""
        self._context, self._read = self._read, len(self._tokens)
        return self._certain(text[len(known) :])

    def finish(self) -> str:
        """Return what was held back."""
        if self.stopped:
            return ""
        known = self._decoded(self._context, self._read)
        rest = self._decoded(self._context, len(self._tokens))[len(known) :]
        text = self._certain(rest)
        text += "" if self.stopped else self._held
        self._held = ""
        return text

    def _decoded(self, start: int, end: int) -> str:
        text: str = self._tokenizer.decode(self._tokens[start:end], skip_special_tokens=True)
        return text

    def _certain(self, more: str) -> str:
        text = self._held + more
        ends = [at for word in self._stop if (at := text.find(word)) >= 0]
        if ends:
            self.stopped, self._held = True, ""
            return text[: min(ends)]
        kept = max((_overlap(text, word) for word in self._stop), default=0)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]


def _overlap(text: str, word: str) -> int:
    """Return how many of the last letters of a text may be the first of a word."""
    longest = min(len(text), len(word) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(word[:n])), 0)
