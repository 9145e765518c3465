"""Texts and conversations as tokens."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from tfrnet.data.examples import tokenise
from tfrnet.models.load import LoadedModel
from tfrnet.serve.problems import Problem
from tfrnet.serve.schema import Message, Prompt


class Encoder:
    """Encodes and decodes, from any thread."""

    def __init__(self, loaded: LoadedModel) -> None:
        # A tokenizer of its own: others are in use in other threads.
        self._tokenizer = deepcopy(loaded.tokenizer)
        self._lock = threading.Lock()
        config = loaded.model.config.get_text_config()
        self.context = getattr(config, "max_position_embeddings", None) or 1 << 20
        self._vocabulary = loaded.model.get_input_embeddings().weight.shape[0]

    def prompts(self, prompt: Prompt) -> list[list[int]]:
        """Return the tokens of each prompt."""
        given: list[Any]
        single = isinstance(prompt, str) or (prompt and isinstance(prompt[0], int))
        given = [prompt] if single else list(prompt)
        if not given:
            raise Problem(422, "there is no prompt")
        return [self._text(p) if isinstance(p, str) else self._known(p) for p in given]

    def conversation(self, messages: Sequence[Message]) -> list[int]:
        """Return the tokens of a conversation, by the tokenizer's template."""
        if not getattr(self._tokenizer, "chat_template", None):
            raise Problem(422, "this model has no chat template; use /v1/completions")
        turns = [{"role": each.role, "content": _plain(each)} for each in messages]
        with self._lock:
            try:
                text = self._tokenizer.apply_chat_template(
                    turns, add_generation_prompt=True, tokenize=False
                )
            except Exception:
                # What the template says may repeat the messages.
                raise Problem(
                    422, "the model's chat template does not accept these messages"
                ) from None
        return self._text(str(text))

    def token(self, number: int) -> str:
        """Return a token's own text."""
        with self._lock:
            return str(self._tokenizer.decode([number]))

    def _text(self, text: str) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Problem(
                422, "the prompt contains half of a surrogate pair, which is not valid text"
            ) from None
        with self._lock:
            ids = tokenise(text, self._tokenizer)
        if not ids:
            raise Problem(422, "the prompt is empty")
        return ids

    def _known(self, ids: list[int]) -> list[int]:
        if not ids or not all(0 <= token < self._vocabulary for token in ids):
            raise Problem(422, "the prompt is empty or contains a number that is not a token")
        return list(ids)


def _plain(message: Message) -> str:
    """Return the text of a message."""
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    if any(part.get("type") != "text" for part in message.content):
        raise Problem(422, "the content of a message must be text")
    return "".join(str(part.get("text", "")) for part in message.content)
