"""The thread that answers completions, each from beginning to end with one mask.

Rows that run under one mask are a lane: a tree of modules over the shared weights, with a mask of
its own. A new generation opens a new lane for the answers that begin from then on; those under way
end in theirs. So the switch waits for nobody, and no answer mixes two masks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfrnet.models.generation import end_tokens
from tfrnet.models.load import LoadedModel
from tfrnet.models.twin import twin_of
from tfrnet.serve.batch import Batch
from tfrnet.serve.sampling import Choice, Sampler, Sampling
from tfrnet.serve.text import TextStream

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from tfrnet.core.effect import Effect
    from tfrnet.core.tensors import State

# So many prompt tokens at most begin at once, padding included; one prompt may have more.
_PROMPT_TOKENS = 4096

Attach = Callable[["PreTrainedModel"], "Effect"]


@dataclass(frozen=True)
class Piece:
    """What one more token brought: text that is certain, and at the end why it ended."""

    text: str
    choice: Choice | None = None
    finish: str | None = None  # stop, length, or error


@dataclass(eq=False)
class Answer:
    """One completion to be made. `emit` is called in the engine's thread with every piece."""

    prompt: list[int]
    most_tokens: int
    emit: Callable[[Piece], None]
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    untouched: bool = False  # by the model as it was before all requests
    generation: int = -1  # the one that answers, once it has begun
    cancelled: bool = False
    tokens: int = field(default=0, init=False)
    last: int = field(default=0, init=False)

    def begin(self, loaded: LoadedModel, generation: int) -> None:
        """Make ready for the first token."""
        self.generation = generation
        self._sampler = Sampler(self.sampling)
        self._text = TextStream(loaded.tokenizer, self.stop)

    def take(self, logits: torch.Tensor, likeliest: int, ends: frozenset[int]) -> bool:
        """Choose the next token, emit what it brings, and tell whether the answer goes on."""
        choice = self._sampler.choose(logits, likeliest)
        if choice.token in ends:
            self.emit(Piece(self._text.finish(), None, "stop"))
            return False
        self.tokens += 1
        self.last = choice.token
        text = self._text.add(choice.token)
        if self._text.stopped:
            self.emit(Piece(text, choice, "stop"))
            return False
        if self.tokens >= self.most_tokens:
            text += self._text.finish()
            self.emit(Piece(text, choice, "stop" if self._text.stopped else "length"))
            return False
        self.emit(Piece(text, choice))
        return True


class Lane:
    """Answers under way with one mask."""

    def __init__(self, model: PreTrainedModel, effect: Effect | None) -> None:
        self.model = model
        self.effect = effect
        self.generation = 0
        self.batch = Batch(model)
        self.answers: list[Answer] = []

    def show(self, state: State, generation: int) -> None:
        """Act as in a state from the next answer on; there must be none under way."""
        assert self.effect is not None
        assert not self.answers
        self.effect.show(state)
        self.generation = generation

    def keep(self, goes_on: list[bool]) -> None:
        """Let go of the answers that have ended."""
        if not all(goes_on):
            rows = [i for i, yes in enumerate(goes_on) if yes]
            self.batch.keep(rows)
            self.answers = [self.answers[i] for i in rows]


class TooManyError(Exception):
    """More completions are waiting than may."""


class Engine:
    """Answers completions in a thread of its own, up to `rows` at once on each lane."""

    def __init__(
        self,
        loaded: LoadedModel,
        attach: Attach,
        state: State,
        generation: int,
        rows: int = 16,
        most_waiting: int = 256,
        failed: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        """Take a bare model, which stays bare: lanes are twins of it."""
        # What it cannot do shows now, not with the first question.
        Batch(loaded.model).add([[0]])
        self._loaded = loaded
        self._attach = attach
        self._ends = frozenset(end_tokens(loaded))
        self._rows = rows
        self._most_waiting = most_waiting
        self._failed = failed
        self._untouched = Lane(loaded.model, None)
        self._current = self._new_lane()
        self._current.show(state, generation)
        self._lanes = [self._untouched, self._current]
        self._shown = generation
        self._next: tuple[State, int, Future[None]] | None = None
        self._waiting: deque[Answer] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="completions", daemon=True)
        self._thread.start()

    # For other threads

    @property
    def generation(self) -> int:
        """The generation that the next answer begins with."""
        return self._shown

    @property
    def waiting(self) -> int:
        """How many answers have not begun."""
        return len(self._waiting)

    @property
    def under_way(self) -> int:
        """How many answers have begun and not ended."""
        return sum(len(lane.answers) for lane in self._lanes)

    def submit(self, answer: Answer) -> None:
        """Queue an answer."""
        with self._changed:
            if len(self._waiting) >= self._most_waiting:
                self._waiting = deque(each for each in self._waiting if not each.cancelled)
            if self._stopping or len(self._waiting) >= self._most_waiting:
                raise TooManyError
            self._waiting.append(answer)
            self._changed.notify()

    def show(self, state: State, generation: int) -> None:
        """Let every answer that begins after this call be of a new generation."""
        taken: Future[None] = Future()
        with self._changed:
            self._next = (state, generation, taken)
            self._changed.notify()
        while self._thread.is_alive():
            with suppress(TimeoutError):
                taken.result(0.2)
                return

    def stop(self, seconds: float) -> None:
        """Take no more answers, and let those here end within some seconds."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(seconds)

    # In the engine's own thread

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._next or self.under_way or self._stopping):
                    self._changed.wait()
                if self._stopping and not (self._waiting or self.under_way):
                    return
                self._switch()
                admitted = {lane: self._admitted(lane) for lane in self._lanes}
            for lane, answers in admitted.items():
                try:
                    self._advance(lane, answers)
                except Exception as error:
                    self._give_up(lane, answers, error)

    def _new_lane(self) -> Lane:
        twin = twin_of(self._loaded.model)
        return Lane(twin, self._attach(twin))

    def _switch(self) -> None:
        """Take over the newest generation; where that fails, who shows it is told."""
        if self._next is None:
            return
        state, generation, taken = self._next
        self._next = None
        try:
            self._current = self._lane_for(state, generation)
        except Exception as error:
            taken.set_exception(error)
            return
        self._shown = generation
        taken.set_result(None)

    def _lane_for(self, state: State, generation: int) -> Lane:
        """Return a lane without answers, in this state."""
        others = (lane for lane in self._lanes if lane not in (self._untouched, self._current))
        free = next((lane for lane in (*others, self._current) if not lane.answers), None)
        if free is None:
            free = self._new_lane()
            self._lanes.append(free)
        free.show(state, generation)
        return free

    def _admitted(self, lane: Lane) -> list[Answer]:
        """Take from the queue what a lane can begin with now, in order."""
        if lane not in (self._current, self._untouched) or not lane.batch.takes_more:
            return []
        room = self._rows - len(lane.answers)
        untouched = lane is self._untouched
        chosen: list[Answer] = []
        for answer in [a for a in self._waiting if a.untouched is untouched][:room]:
            longest = max(len(each.prompt) for each in [*chosen, answer])
            if chosen and longest * (len(chosen) + 1) > _PROMPT_TOKENS:
                break
            self._waiting.remove(answer)
            if not answer.cancelled:
                chosen.append(answer)
        return chosen

    def _advance(self, lane: Lane, admitted: list[Answer]) -> None:
        """Begin new answers and bring all one token on."""
        lane.keep([not answer.cancelled for answer in lane.answers])
        if lane.answers:
            logits = lane.batch.step([answer.last for answer in lane.answers])
            lane.keep(self._take(lane.answers, logits))
        if admitted:
            for answer in admitted:
                answer.begin(self._loaded, lane.generation)
            logits = lane.batch.add([answer.prompt for answer in admitted])
            lane.answers += admitted
            before = len(lane.answers) - len(admitted)
            lane.keep([True] * before + self._take(admitted, logits))

    def _take(self, answers: list[Answer], logits: torch.Tensor) -> list[bool]:
        likeliest = logits.argmax(-1).tolist()
        return [
            self._take_one(answer, row, token)
            for answer, row, token in zip(answers, logits, likeliest, strict=True)
        ]

    def _take_one(self, answer: Answer, logits: torch.Tensor, likeliest: int) -> bool:
        """Bring one answer on; if that fails, it ends and the others do not."""
        try:
            return answer.take(logits, likeliest, self._ends)
        except Exception as error:
            self._failed(error)
            answer.emit(Piece("", None, "error"))
            return False

    def _give_up(self, lane: Lane, admitted: list[Answer], error: BaseException) -> None:
        """End the answers of a lane whose pass failed; the others go on."""
        self._failed(error)
        for answer in dict.fromkeys([*lane.answers, *admitted]):
            answer.emit(Piece("", None, "error"))
        lane.answers = []
        lane.batch = Batch(lane.model)
