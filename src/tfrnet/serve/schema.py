"""What the service takes and gives, as it stands in the OpenAPI document."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tfrnet.data.requests import MAX_ID_LENGTH
from tfrnet.serve.queue import Approval, State

MOST_CHOICES = 16


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


class RequestIn(_Strict):
    """A deletion request."""

    id: str = Field(
        min_length=1, max_length=MAX_ID_LENGTH, description="Yours; the same id is done once."
    )
    examples: list[ExampleIn] = Field(min_length=1, max_length=10_000)
    due: datetime | None = Field(None, description="Deadline; a month from now without it.")
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

    to: int = Field(ge=0, description="A generation that is kept.")


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


class _Generation(_Lenient):
    model: str | None = None
    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    n: int = Field(1, ge=1, le=MOST_CHOICES)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: str | list[str] | None = None
    stream: bool = False
    stream_options: dict[str, Any] | None = None

    def stop_words(self) -> tuple[str, ...]:
        """Return the words that end an answer."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with the number of tokens."""
        return bool((self.stream_options or {}).get("include_usage"))


class CompletionIn(_Generation):
    """OpenAI's completion request."""

    prompt: str | list[str] | list[int] | list[list[int]]
    max_tokens: int = Field(16, ge=1)
    logprobs: int | None = Field(None, ge=0, le=20)
    echo: Literal[False] = False
    best_of: int | None = None
    suffix: None = None


class Message(_Lenient):
    """One turn of a conversation."""

    role: str = Field(max_length=50)
    content: str | list[dict[str, Any]] | None = None


class ChatIn(_Generation):
    """OpenAI's chat completion request."""

    messages: list[Message] = Field(min_length=1, max_length=1000)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = False
    top_logprobs: int | None = Field(None, ge=0, le=20)
    tools: None = None
    response_format: None = None
