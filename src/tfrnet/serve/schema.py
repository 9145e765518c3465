"""What the service takes and gives, as it stands in the OpenAPI document."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from tfrnet.data.requests import MAX_ID_LENGTH
from tfrnet.serve.queue import Approval, State
from tfrnet.serve.sampling import Sampling

MOST_CHOICES = 16


def _refuse(value: Any) -> Any:
    if value:
        raise ValueError("this is not supported here; leave it out")
    return value


# What clients may name, as long as they ask for nothing by it.
Nothing = Annotated[float, AfterValidator(_refuse)]
Empty = Annotated[list[Any] | dict[str, Any] | None, AfterValidator(_refuse)]


def _refuse_numbers(value: Any) -> Any:
    """Raise at what could be seconds or milliseconds since some day."""
    if not (isinstance(value, str) and re.match(r"\d{4}-", value)):
        raise ValueError("write it as in 2026-11-03T17:00:00Z")
    return value


Moment = Annotated[datetime, BeforeValidator(_refuse_numbers)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class _Lenient(BaseModel):
    """What OpenAI's clients send beyond this is without effect."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class ExampleIn(_Strict):
    """Something to forget: a prompt with its answer, or a text."""

    prompt: str | None = None
    answer: str | None = None
    join: Literal["", " "] | None = Field(
        None, description="What stands between prompt and answer; a space without it."
    )
    text: str | None = None
    wrong_answers: list[str] | None = None
    group: str | None = Field(
        None, description="As in retain and guard data; without effect in a request."
    )


class RequestIn(_Strict):
    """A deletion request."""

    id: str = Field(
        min_length=1, max_length=MAX_ID_LENGTH, description="Yours; the same id is done once."
    )
    examples: list[ExampleIn] = Field(min_length=1, max_length=10_000)
    due: Moment | None = Field(None, description="Deadline; a month from now without it.")
    callback_urls: list[Annotated[str, Field(max_length=2000)]] = Field(
        default_factory=list, max_length=5, description="Told when the request has ended."
    )


class RequestOut(BaseModel):
    """A request as it stands; never its words."""

    id: str
    state: State
    approval: Approval
    examples: int
    received_time: datetime
    due: datetime
    days_left: float
    ahead: int | None = Field(None, description="Requests before it in the queue.")
    started_time: datetime | None = None
    ended_time: datetime | None = None
    reason: str = ""
    stage: str | None = Field(None, description="What is being done, while in progress.")
    in_force: bool | None = Field(
        None, description="Whether what was applied still is, and was not rolled back."
    )
    outcome: dict[str, Any] | None = Field(
        None, description="What the ledger says: losses, guard, generation, line and hash."
    )
    guard_groups: str = Field(
        "", description="Guard losses by group in words; outcome has those of all groups."
    )
    audit: str = Field("", description="What the audit says in words; outcome has its figures.")
    submitted_by: str = ""
    decided_by: str = ""


class RequestPage(BaseModel):
    """Some requests, and where to go on."""

    requests: list[RequestOut]
    next: int | None = Field(None, description="Give it as `after` for the next page.")


class DenyIn(_Strict):
    """Why a request is denied; it is kept and shown."""

    reason: str = Field("", max_length=500)


class RollbackIn(_Strict):
    """Where to return to."""

    to: int = Field(strict=True, ge=0, description="A generation that is kept.")


class RollbackOut(BaseModel):
    """The generation that a rollback made."""

    generation: int


class StateOut(BaseModel):
    """What is in force."""

    model: str
    method: str
    generation: int
    serving: int = Field(description="The generation that the next completion is made with.")
    requests_seen: int
    kept_generations: list[int]
    newest_request: str | None = Field(None, description="The request that came last.")
    queue: dict[str, int]
    overdue: int
    role: Literal["primary", "replica"]
    lag_seconds: float = Field(description="For how long a replica has been behind its state.")
    problem: str = ""
    version: str


class CheckOut(BaseModel):
    """One thing that was looked at."""

    name: str
    passed: bool
    detail: str = ""


class VerifyOut(BaseModel):
    """Whether the state is sound."""

    passed: bool
    checks: list[CheckOut]


class HistoryOut(BaseModel):
    """Events of the ledger."""

    entries: list[dict[str, Any]]
    next: int | None = None


Prompt = str | list[str] | list[int] | list[list[int]]
StopWord = Annotated[str, Field(max_length=200)]


class _Generation(_Lenient):
    """What both kinds of completions have. What would change the answer and is not done is refused.

    OpenAI's clients may send null for what they leave open.
    """

    model: str | None = None
    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    n: int = Field(1, ge=1, le=MOST_CHOICES)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: StopWord | Annotated[list[StopWord], Field(max_length=16)] | None = None
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    frequency_penalty: Nothing = 0
    presence_penalty: Nothing = 0
    logit_bias: Empty = None

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, sent: Any) -> Any:
        if isinstance(sent, dict):
            return {name: value for name, value in sent.items() if value is not None}
        return sent

    def stop_words(self) -> tuple[str, ...]:
        """Return the words that end an answer."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with the number of tokens."""
        return bool((self.stream_options or {}).get("include_usage"))

    def _sampling(self, copy: int, logprobs: int | None) -> Sampling:
        # Several answers to one prompt must differ, though the seed is one.
        seed = None if self.seed is None else (self.seed + copy) % 2**63
        return Sampling(self.temperature, self.top_p, seed, logprobs)


class CompletionIn(_Generation):
    """OpenAI's completion request."""

    prompt: Prompt
    max_tokens: int = Field(16, ge=1)
    logprobs: int | None = Field(None, ge=0, le=20)
    echo: Literal[False] = False
    best_of: Literal[1] | None = None
    suffix: Literal[""] | None = None

    def sampling(self, copy: int) -> Sampling:
        """Return how the tokens of one of the answers are chosen."""
        return self._sampling(copy, self.logprobs)

    def most_tokens(self, room: int) -> int:
        """Return how many tokens an answer has at most; there is room for so many."""
        return self.max_tokens


class Message(_Lenient):
    """One turn of a conversation."""

    role: str = Field(max_length=50)
    content: str | list[dict[str, Any]] | None = None


class PlainText(_Lenient):
    """The only format of an answer."""

    type: Literal["text"]


class ChatIn(_Generation):
    """OpenAI's chat completion request."""

    messages: list[Message] = Field(min_length=1, max_length=1000)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool = False
    top_logprobs: int | None = Field(None, ge=0, le=20)
    tools: Empty = None
    functions: Empty = None
    modalities: list[Literal["text"]] | None = None
    response_format: PlainText | None = None

    def sampling(self, copy: int) -> Sampling:
        """Return how the tokens of one of the answers are chosen."""
        return self._sampling(copy, (self.top_logprobs or 0) if self.logprobs else None)

    def most_tokens(self, room: int) -> int:
        """Return how many tokens an answer has at most; there is room for so many."""
        return self.max_completion_tokens or self.max_tokens or max(room, 1)
