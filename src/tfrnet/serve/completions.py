"""Completions as OpenAI's clients ask for them, made by the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from tfrnet.serve.encoding import Encoder
from tfrnet.serve.engine import Answer, Engine, Piece
from tfrnet.serve.openai_format import Document, Format, event
from tfrnet.serve.problems import Problem, busy
from tfrnet.serve.schema import MOST_CHOICES, ChatIn, CompletionIn

# How often it is looked whether a client is still there.
_SECONDS = 0.5

IsGone = Callable[[], Awaitable[bool]]


@dataclass
class Choice:
    """One answer as it comes in."""

    index: int
    answer: Answer
    pieces: asyncio.Queue[Piece] = field(default_factory=asyncio.Queue)

    async def next(self, is_gone: IsGone | None = None) -> Piece:
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

    async def all(self, is_gone: IsGone) -> list[Piece]:
        """Return all pieces."""
        pieces = [await self.next(is_gone)]
        while pieces[-1].finish is None:
            pieces.append(await self.next(is_gone))
        return pieces


class Job:
    """All answers to one call."""

    def __init__(
        self, engine: Engine, encoder: Encoder, wanted: CompletionIn | ChatIn, model: str
    ) -> None:
        self._engine = engine
        self._encoder = encoder
        self._wanted = wanted
        self._format = Format(isinstance(wanted, ChatIn), model, encoder.token)
        self._prompt_tokens = 0
        self._choices: list[Choice] = []

    async def begin(self, untouched: bool) -> None:
        """Encode the prompts and queue their answers, all or none."""
        wanted = self._wanted
        if isinstance(wanted, ChatIn):
            prompts = [await asyncio.to_thread(self._encoder.conversation, wanted.messages)]
        else:
            prompts = await asyncio.to_thread(self._encoder.prompts, wanted.prompt)
        if len(prompts) * wanted.n > MOST_CHOICES:
            raise Problem(422, f"at most {MOST_CHOICES} answers can be asked for at once")
        self._prompt_tokens = sum(map(len, prompts))
        for ids in prompts:
            most = self._most_tokens(len(ids))
            for copy in range(wanted.n):
                self._add(ids, most, copy, untouched)
        try:
            for choice in self._choices:
                self._engine.submit(choice.answer)
        except BaseException:
            self.leave()
            raise

    def _add(self, ids: list[int], most: int, copy: int, untouched: bool) -> None:
        pieces: asyncio.Queue[Piece] = asyncio.Queue()
        answer = Answer(
            ids,
            most,
            _into(asyncio.get_running_loop(), pieces),
            self._wanted.sampling(copy),
            self._wanted.stop_words(),
            untouched,
        )
        self._choices.append(Choice(len(self._choices), answer, pieces))

    def _most_tokens(self, prompt: int) -> int:
        room = self._encoder.context - prompt
        most = self._wanted.most_tokens(room)
        if most > room:
            raise Problem(
                400,
                f"the model's context holds {self._encoder.context} tokens; the prompt has "
                f"{prompt}, and {most} more were asked for",
            )
        return most

    def leave(self) -> None:
        """Say that nobody waits for the answers any more."""
        for choice in self._choices:
            choice.answer.cancelled = True

    def generations(self) -> str:
        """Return which generations answered; several where answers began at different times."""
        found = sorted({choice.answer.generation for choice in self._choices})
        return ",".join(map(str, found))

    def usage(self) -> dict[str, int]:
        """Return the numbers of tokens."""
        made = sum(choice.answer.tokens for choice in self._choices)
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": made,
            "total_tokens": self._prompt_tokens + made,
        }

    async def whole(self, is_gone: IsGone) -> Document:
        """Return the complete answer."""
        try:
            pieces = [await choice.all(is_gone) for choice in self._choices]
        finally:
            self.leave()
        choices = [self._format.choice(index, each) for index, each in enumerate(pieces)]
        return self._format.whole(self.generations(), choices, self.usage())

    async def begun(self, is_gone: IsGone) -> list[Piece]:
        """Return the first piece of every answer: by then it is known which generations answer."""
        try:
            return [await choice.next(is_gone) for choice in self._choices]
        except BaseException:
            self.leave()
            raise

    async def stream(self, first: list[Piece]) -> AsyncIterator[str]:
        """Yield the answer as server-sent events."""
        try:
            for choice, piece in zip(self._choices, first, strict=True):
                for opening in self._format.opening(choice.index):
                    yield self._chunk([opening])
                yield self._chunk([self._format.delta(choice.index, piece)])
            async for choice, piece in self._rest(first):
                if piece.text or piece.finish or piece.choice:
                    yield self._chunk([self._format.delta(choice.index, piece)])
            if self._wanted.wants_usage:
                yield self._chunk([], usage=self.usage())
            yield "data: [DONE]\n\n"
        except Problem as problem:
            yield event({"error": {"message": problem.detail, "code": problem.status}})
        finally:
            self.leave()

    async def _rest(self, first: list[Piece]) -> AsyncIterator[tuple[Choice, Piece]]:
        """Yield the pieces after the first of each answer, in turn."""
        going = [c for c, piece in zip(self._choices, first, strict=True) if not piece.finish]
        while going:
            for choice in list(going):
                piece = await choice.next()
                if piece.finish:
                    going.remove(choice)
                yield choice, piece

    def _chunk(self, choices: list[Document], **more: Document) -> str:
        return self._format.chunk(self.generations(), choices, **more)


def _into(loop: asyncio.AbstractEventLoop, pieces: asyncio.Queue[Piece]) -> Callable[[Piece], None]:
    def emit(piece: Piece) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

    return emit


def refuse_unknown_model(asked: str | None, served: str) -> bool:
    """Return whether the untouched model is asked for; raise if it is one that is not here."""
    if asked in (None, "", served):
        return False
    if asked == f"{served}@0":
        return True
    raise Problem(404, f"this service has the models {served} and {served}@0 only")
