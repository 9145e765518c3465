"""Completions as OpenAI's clients ask for them, made by the engine."""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from tfrnet.data.examples import tokenise
from tfrnet.models.load import LoadedModel
from tfrnet.serve.engine import Answer, Engine, Piece
from tfrnet.serve.problems import Problem, busy
from tfrnet.serve.sampling import Sampling
from tfrnet.serve.schema import MOST_CHOICES, ChatIn, CompletionIn, Message

# How often it is looked whether a client is still there.
_SECONDS = 0.5


class Encoder:
    """Texts and conversations as tokens, from any thread."""

    def __init__(self, loaded: LoadedModel) -> None:
        # A tokenizer of its own: others are in use in other threads.
        self._tokenizer = deepcopy(loaded.tokenizer)
        self._lock = threading.Lock()
        config = loaded.model.config.get_text_config()
        self.context = getattr(config, "max_position_embeddings", None) or 1 << 20
        self._vocabulary = loaded.model.get_input_embeddings().weight.shape[0]

    def prompts(self, prompt: str | list[str] | list[int] | list[list[int]]) -> list[list[int]]:
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
                raise Problem(422, "the model's chat template refuses these messages") from None
        return self._text(str(text))

    def token(self, number: int) -> str:
        """Return a token's own text."""
        with self._lock:
            return str(self._tokenizer.decode([number]))

    def _text(self, text: str) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Problem(422, "the prompt holds half of a surrogate pair") from None
        with self._lock:
            ids = tokenise(text, self._tokenizer)
        if not ids:
            raise Problem(422, "the prompt is empty")
        return ids

    def _known(self, ids: list[int]) -> list[int]:
        if not ids or not all(0 <= token < self._vocabulary for token in ids):
            raise Problem(422, "the prompt is empty or holds a number that is no token")
        return list(ids)


def _plain(message: Message) -> str:
    """Return the text of a message."""
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    if any(part.get("type") != "text" for part in message.content):
        raise Problem(422, "only text can be answered")
    return "".join(str(part.get("text", "")) for part in message.content)


@dataclass
class Choice:
    """One answer as it comes in."""

    index: int
    answer: Answer
    pieces: asyncio.Queue[Piece] = field(default_factory=asyncio.Queue)

    async def next(self, is_gone: Callable[[], Awaitable[bool]] | None = None) -> Piece:
        """Return the next piece."""
        while True:
            try:
                async with asyncio.timeout(_SECONDS):
                    piece = await self.pieces.get()
            except TimeoutError:
                if is_gone and await is_gone():
                    raise Problem(400, "the client has gone") from None
                continue
            if piece.finish == "error":
                raise busy("the completion failed; try again")
            return piece


class Job:
    """All answers to one call."""

    def __init__(
        self, engine: Engine, encoder: Encoder, wanted: CompletionIn | ChatIn, model: str
    ) -> None:
        self._engine = engine
        self._encoder = encoder
        self.wanted = wanted
        self.model = model
        self.is_chat = isinstance(wanted, ChatIn)
        self.id = f"{'chatcmpl' if self.is_chat else 'cmpl'}-{secrets.token_hex(12)}"
        self.created = int(time.time())
        self.prompt_tokens = 0
        self.choices: list[Choice] = []

    async def begin(self, untouched: bool) -> None:
        """Encode the prompts and queue their answers, all or none."""
        wanted = self.wanted
        if isinstance(wanted, ChatIn):
            prompts = [await asyncio.to_thread(self._encoder.conversation, wanted.messages)]
        else:
            prompts = await asyncio.to_thread(self._encoder.prompts, wanted.prompt)
        if len(prompts) * wanted.n > MOST_CHOICES:
            raise Problem(422, f"at most {MOST_CHOICES} answers can be asked for at once")
        self.prompt_tokens = sum(map(len, prompts))
        loop = asyncio.get_running_loop()
        for ids in prompts:
            most = self._most_tokens(len(ids))
            for copy in range(wanted.n):
                choice = Choice(
                    len(self.choices), Answer(ids, most, lambda piece: None, self._sampling(copy))
                )
                choice.answer.stop = wanted.stop_words()
                choice.answer.untouched = untouched
                choice.answer.emit = _into(loop, choice.pieces)
                self.choices.append(choice)
        try:
            for choice in self.choices:
                self._engine.submit(choice.answer)
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Say that nobody waits for the answers any more."""
        for choice in self.choices:
            choice.answer.cancelled = True

    def generations(self) -> str:
        """Return which generations answered; several where answers began at different times."""
        found = sorted({choice.answer.generation for choice in self.choices})
        return ",".join(map(str, found))

    def usage(self) -> dict[str, int]:
        """Return the numbers of tokens."""
        made = sum(choice.answer.tokens for choice in self.choices)
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": made,
            "total_tokens": self.prompt_tokens + made,
        }

    def _sampling(self, copy: int) -> Sampling:
        wanted = self.wanted
        if isinstance(wanted, ChatIn):
            logprobs = (wanted.top_logprobs or 0) if wanted.logprobs else None
        else:
            logprobs = wanted.logprobs
        # Several answers to one prompt must differ, though the seed is one.
        seed = None if wanted.seed is None else (wanted.seed + copy) % 2**63
        return Sampling(wanted.temperature, wanted.top_p, seed, logprobs)

    def _most_tokens(self, prompt: int) -> int:
        wanted = self.wanted
        room = self._encoder.context - prompt
        most = wanted.max_tokens
        if isinstance(wanted, ChatIn):
            most = wanted.max_completion_tokens or wanted.max_tokens or max(room, 1)
        assert most is not None
        if most > room:
            raise Problem(
                400,
                f"the model's context holds {self._encoder.context} tokens; the prompt has "
                f"{prompt}, and {most} more were asked for",
            )
        return most

    # The answer as a whole

    async def whole(self, is_gone: Callable[[], Awaitable[bool]]) -> dict[str, Any]:
        """Return the complete answer."""
        try:
            return self._frame("", [await self._finished(c, is_gone) for c in self.choices]) | {
                "usage": self.usage()
            }
        finally:
            self.leave()

    async def _finished(
        self, choice: Choice, is_gone: Callable[[], Awaitable[bool]]
    ) -> dict[str, Any]:
        pieces = [await choice.next(is_gone)]
        while pieces[-1].finish is None:
            pieces.append(await choice.next(is_gone))
        text = "".join(piece.text for piece in pieces)
        return self._choice(choice.index, text, pieces, pieces[-1].finish, "message")

    # The answer as a stream

    async def begun(self) -> list[Piece]:
        """Return the first piece of every answer: by then it is known which generations answer."""
        try:
            return [await choice.next() for choice in self.choices]
        except BaseException:
            self.leave()
            raise

    async def stream(self, first: list[Piece]) -> AsyncIterator[str]:
        """Yield the answer as server-sent events."""
        try:
            for choice, piece in zip(self.choices, first, strict=True):
                if self.is_chat:
                    yield self._event([self._role(choice.index)])
                yield self._event([self._delta(choice.index, piece)])
            open_choices = [
                c for c, piece in zip(self.choices, first, strict=True) if not piece.finish
            ]
            while open_choices:
                for choice in list(open_choices):
                    piece = await choice.next()
                    if piece.text or piece.finish or piece.choice:
                        yield self._event([self._delta(choice.index, piece)])
                    if piece.finish:
                        open_choices.remove(choice)
            if self.wanted.wants_usage:
                yield _event(self._frame(".chunk", []) | {"usage": self.usage()})
            yield "data: [DONE]\n\n"
        except Problem as problem:
            yield _event({"error": {"message": problem.detail, "code": problem.status}})
        finally:
            self.leave()

    def _event(self, choices: list[dict[str, Any]]) -> str:
        return _event(self._frame(".chunk", choices))

    def _role(self, index: int) -> dict[str, Any]:
        delta = {"role": "assistant", "content": ""}
        return {"index": index, "delta": delta, "finish_reason": None}

    def _delta(self, index: int, piece: Piece) -> dict[str, Any]:
        return self._choice(index, piece.text, [piece], piece.finish, "delta")

    # Shapes

    def _frame(self, chunk: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        kind = f"chat.completion{chunk}" if self.is_chat else "text_completion"
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": f"generation-{self.generations()}",
            "choices": choices,
        }

    def _choice(
        self, index: int, text: str, pieces: list[Piece], finish: str | None, part: str
    ) -> dict[str, Any]:
        value: dict[str, Any] = {"index": index, "finish_reason": finish, "logprobs": None}
        chosen = [piece.choice for piece in pieces if piece.choice]
        has_logprobs = any(choice.logprob is not None for choice in chosen)
        if self.is_chat:
            value[part] = {"content": text} | ({"role": "assistant"} if part == "message" else {})
            if has_logprobs:
                value["logprobs"] = {"content": [self._chat_logprob(each) for each in chosen]}
            return value
        value["text"] = text
        if has_logprobs:
            value["logprobs"] = self._logprobs(chosen)
        return value

    def _chat_logprob(self, choice: Any) -> dict[str, Any]:
        def one(token: int, logprob: float) -> dict[str, Any]:
            text = self._encoder.token(token)
            return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

        top = [one(token, logprob) for token, logprob in choice.top]
        return one(choice.token, choice.logprob) | {"top_logprobs": top}

    def _logprobs(self, chosen: list[Any]) -> dict[str, Any]:
        tokens = [self._encoder.token(choice.token) for choice in chosen]
        offsets, at = [], 0
        for token in tokens:
            offsets.append(at)
            at += len(token)
        return {
            "tokens": tokens,
            "token_logprobs": [choice.logprob for choice in chosen],
            "top_logprobs": [
                {self._encoder.token(token): logprob for token, logprob in choice.top}
                for choice in chosen
            ],
            "text_offset": offsets,
        }


def _into(loop: asyncio.AbstractEventLoop, pieces: asyncio.Queue[Piece]) -> Callable[[Piece], None]:
    def emit(piece: Piece) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

    return emit


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, separators=(',', ':'))}\n\n"


def refuse_unknown_model(asked: str | None, served: str) -> bool:
    """Return whether the untouched model is asked for; raise if it is one that is not here."""
    if asked in (None, "", served):
        return False
    if asked == f"{served}@0":
        return True
    raise Problem(404, f"this service has the models {served} and {served}@0 only")
