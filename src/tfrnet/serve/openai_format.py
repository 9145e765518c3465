"""Answers in the shapes that OpenAI's clients read: text or chat, whole or in chunks."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

from tfrnet.serve.engine import Piece
from tfrnet.serve.sampling import Choice

Document = dict[str, Any]


class Format:
    """The shapes of one call's answers. `token` gives a token's own text."""

    def __init__(self, is_chat: bool, model: str, token: Callable[[int], str]) -> None:
        self._is_chat = is_chat
        self._model = model
        self._token = token
        self._id = f"{'chatcmpl' if is_chat else 'cmpl'}-{secrets.token_hex(12)}"
        self._created = int(time.time())

    def whole(self, generations: str, choices: list[Document], usage: Document) -> Document:
        """Return a complete answer."""
        return self._frame("", generations, choices) | {"usage": usage}

    def chunk(self, generations: str, choices: list[Document], **more: Document) -> str:
        """Return a part of a stream as a server-sent event."""
        return event(self._frame(".chunk", generations, choices) | more)

    def choice(self, index: int, pieces: Sequence[Piece]) -> Document:
        """Return one of the complete answers."""
        text = "".join(piece.text for piece in pieces)
        return self._choice(index, text, pieces, {"role": "assistant", "content": text}, "message")

    def opening(self, index: int) -> list[Document]:
        """Return what a stream's answer begins with: in a conversation, who speaks."""
        delta = {"role": "assistant", "content": ""}
        opening = {"index": index, "delta": delta, "finish_reason": None}
        return [opening] if self._is_chat else []

    def delta(self, index: int, piece: Piece) -> Document:
        """Return one more piece of an answer."""
        return self._choice(index, piece.text, [piece], {"content": piece.text}, "delta")

    def _frame(self, chunk: str, generations: str, choices: list[Document]) -> Document:
        return {
            "id": self._id,
            "object": f"chat.completion{chunk}" if self._is_chat else "text_completion",
            "created": self._created,
            "model": self._model,
            "system_fingerprint": f"generation-{generations}",
            "choices": choices,
        }

    def _choice(
        self, index: int, text: str, pieces: Sequence[Piece], message: Document, part: str
    ) -> Document:
        chosen = [piece.choice for piece in pieces if piece.choice]
        logprobs = None
        if any(choice.logprob is not None for choice in chosen):
            logprobs = self._chat_logprobs(chosen) if self._is_chat else self._logprobs(chosen)
        said = {part: message} if self._is_chat else {"text": text}
        return {"index": index, "finish_reason": pieces[-1].finish, "logprobs": logprobs} | said

    def _chat_logprobs(self, chosen: Sequence[Choice]) -> Document:
        def one(token: int, logprob: float | None) -> Document:
            text = self._token(token)
            return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

        return {
            "content": [
                one(choice.token, choice.logprob)
                | {"top_logprobs": [one(token, logprob) for token, logprob in choice.top]}
                for choice in chosen
            ]
        }

    def _logprobs(self, chosen: Sequence[Choice]) -> Document:
        tokens = [self._token(choice.token) for choice in chosen]
        offsets, at = [], 0
        for token in tokens:
            offsets.append(at)
            at += len(token)
        return {
            "tokens": tokens,
            "token_logprobs": [choice.logprob for choice in chosen],
            "top_logprobs": [
                {self._token(token): logprob for token, logprob in choice.top} for choice in chosen
            ],
            "text_offset": offsets,
        }


def event(value: Document) -> str:
    """Return a document as a server-sent event."""
    return f"data: {json.dumps(value, separators=(',', ':'))}\n\n"
