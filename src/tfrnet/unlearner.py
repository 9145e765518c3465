"""The base class of all methods: data, guard, and requests that apply completely or not at all."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from safetensors.torch import load as load_tensors

from tfrnet.core import files
from tfrnet.core.cost import Account
from tfrnet.core.drift import MAKES_ROOM, Drift, drift_ceiling
from tfrnet.core.effect import Effect
from tfrnet.core.errors import OVERFLOW_HINT, InputError
from tfrnet.core.guard import GuardLoss
from tfrnet.core.guarded_settings import GuardedSettings
from tfrnet.core.outcome import Outcome
from tfrnet.core.search_space import SearchSpace
from tfrnet.core.stage import Report
from tfrnet.core.team import SOLO, Team
from tfrnet.core.tensors import State, tensors_file
from tfrnet.data.examples import Encoded, Example, encode_all
from tfrnet.data.groups import places_by_group
from tfrnet.data.requests import Request, refuse_overlap, refuse_shared
from tfrnet.data.sampling import sample_by_group, sample_indices
from tfrnet.models.device_memory import free_all_of, is_out_of_memory
from tfrnet.models.forward import (
    Answers,
    evaluate_answers,
    evaluate_losses,
    fitting_length,
    frozen,
)
from tfrnet.models.passes import Passes

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


REFERENCE = "reference data"
_NO_RETAIN_DATA = "retain data is needed: it says what the model must keep"
S = TypeVar("S", bound=State)


@dataclass(frozen=True)
class Proposal(Generic[S]):
    """The result of a request before it is committed: the new state and its record."""

    state: S
    outcome: Outcome


class Unlearner(ABC, Generic[S]):
    """A method on one model, in memory. `tfrnet.Session` adds the state on disk.

    A request is applied completely or not at all. `forget` is `propose`, then `adopt`; a session
    commits to disk in between.

    To add a method, assign a subclass to `METHOD` in a module of `tfrnet.methods` or of an entry
    point of that group. It defines the class variables below, `attach`, `read_state` and
    `_propose`, and sets `effect` (from `attach`) and `state` when it is made.

    Without retain data (None) a state can be used, and `forget` must be given the data. `reference`
    are examples like those of the requests that the model never saw, for settings that use them.
    """

    # The name on the command line and the name in tables.
    method: ClassVar[str]
    label: ClassVar[str]
    config_class: ClassVar[type[GuardedSettings]]
    # Whether its states can be exported as an ordinary model, and if not, why.
    exportable: ClassVar[bool] = True
    why_not_exportable: ClassVar[str] = "no ordinary weights have the same effect"
    # Whether several processes can share a request.
    shares_work: ClassVar[bool] = False
    # Whether the model's layers may be compiled for it.
    can_be_compiled: ClassVar[bool] = False
    # What `tfrnet search` tries; a method without it is not searched.
    search_space: ClassVar[SearchSpace | None] = None
    # Advice for users who run out of device memory.
    saves_memory: ClassVar[str] = (
        "a smaller --batch-size or --gradient-checkpointing needs less, and in a new state "
        "trained=lora"
    )
    state: S
    effect: Effect
    retain: list[Example]
    guard: list[Example]
    reference: list[Example]
    _retain_encoded: list[Encoded]
    _guard_encoded: list[Encoded]

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        retain: Sequence[Example] | None,
        config: Any = None,
        *,
        guard: Sequence[Example] | None = None,
        reference: Sequence[Example] = (),
        seed: int = 0,
        batch_size: int | None = None,
        gradient_checkpointing: bool = False,
        compiled: bool = False,
        passes: Passes | None = None,
        team: Team = SOLO,
    ) -> None:
        if batch_size is not None and batch_size < 1:
            raise InputError(f"the batch size must be at least 1, not {batch_size}")
        if team.size > 1 and not self.shares_work:
            raise InputError(
                f"method {self.method} runs in one process, but {team.size} were launched; "
                "start it without a launcher"
            )
        if compiled and not self.can_be_compiled:
            raise InputError(f"method {self.method} cannot compile the model; leave out --compile")
        config = self.config_class() if config is None else config
        self.model = model
        self.config = config
        self.tokenizer = tokenizer
        self.seed = seed
        self.team = team
        self.requests_seen = 0
        # Whether the current state is the one before the first request; a session knows.
        self.is_untouched = False
        self.max_length = fitting_length(model, config.max_length)
        if reference:
            config.refuse_reference()
        self.reference = list(reference)
        self._reference_encoded = self.encode(reference, REFERENCE)
        self._set_data(retain, guard)
        if passes is None and batch_size is not None:
            passes = Passes(
                batch_size, gradient_checkpointing=gradient_checkpointing, compiled=compiled
            )
        self._fit_passes = passes is None
        self.passes = passes or Passes(
            gradient_checkpointing=gradient_checkpointing, compiled=compiled
        )
        if retain is not None:
            self._passes_for_data()
        self._guard_loss: GuardLoss | None = None
        self._counts_drift = False
        # The guard loss of the untouched model, where the total drift counts from.
        self.untouched_guard_loss: float | None = None

    # For methods to define

    @abstractmethod
    def _propose(
        self, name: str, forget: list[Encoded], say: Report, account: Account
    ) -> Proposal[S]:
        """Compute the result of a request. The caller restores the model afterwards."""

    @classmethod
    @abstractmethod
    def attach(cls, model: PreTrainedModel, config: Any, seed: int = 0) -> Effect:
        """Attach the method to a model, in its state before the first request."""

    @classmethod
    @abstractmethod
    def read_state(cls, tensors: Mapping[str, torch.Tensor]) -> S:
        """Return the state with the given tensors."""

    def _automatic_passes(self, gradient_checkpointing: bool, compiled: bool) -> Passes:
        """Choose the size of passes if the user does not."""
        return Passes(gradient_checkpointing=gradient_checkpointing, compiled=compiled)

    def _passes_for_data(self) -> None:
        """Fit the passes to the examples, unless the user has chosen them."""
        if self._fit_passes:
            asked = self.passes
            self.passes = self._automatic_passes(asked.gradient_checkpointing, asked.compiled)

    # The same for all methods

    @property
    def batch_size(self) -> int:
        """The maximum number of examples per pass."""
        return self.passes.examples

    @property
    def gradient_checkpointing(self) -> bool:
        """Whether activations are recomputed in the backward pass."""
        return self.passes.gradient_checkpointing

    @property
    def guard_is_apart(self) -> bool:
        """Whether the guard has examples that no request uses."""
        return not set(self.guard) <= set(self.retain)

    @property
    def holdable(self) -> list[Example]:
        """The examples that requests can hold in place."""
        return self.retain

    def refuse_unfinished(self) -> None:
        """Raise if a method's `__init__` has not set what it must."""
        if missing := [name for name in ("effect", "state") if not hasattr(self, name)]:
            raise InputError(
                f"the method {self.method!r} cannot be used: its __init__ does not set "
                f"{', '.join(missing)}"
            )

    def layout(self) -> list[list[Any]]:
        """Return the parts of the model that the state's tensors belong to: names and sizes."""
        return self.effect.layout()

    def detach(self) -> None:
        """Restore the original model."""
        self.effect.detach()

    def prepare(self, requests: Sequence[Request]) -> list[list[Encoded]]:
        """Return the requests' tokens, or raise if one cannot be applied."""
        if empty := [request.id for request in requests if not request.examples]:
            raise InputError(f"request {empty[0]!r} has no examples")
        refuse_overlap(requests, self.retain, "retain data")
        refuse_overlap(requests, self.guard, "guard data")
        refuse_overlap(requests, self.reference, REFERENCE)
        return [self.encode(r.examples, f"request {r.id!r}") for r in requests]

    def forget(
        self,
        request: Request,
        retain: Sequence[Example] | None = None,
        report: Report | None = None,
    ) -> Outcome:
        """Apply one request: accept its new state, or leave everything as it was.

        Retain data given here replaces the present data for good; the guard stays.
        """
        before = self.retain, self._retain_encoded, self.guard, self._guard_encoded
        try:
            if retain is not None:
                self.use_retain(retain)
            proposal = self.propose(request, report)
        except BaseException:
            self.retain, self._retain_encoded, self.guard, self._guard_encoded = before
            raise
        self.adopt(proposal)
        return proposal.outcome

    def use_retain(self, retain: Sequence[Example]) -> None:
        """Replace the retain data; the guard stays."""
        had_none = not self.retain
        self._set_data(retain, self.guard)
        if had_none:
            self._passes_for_data()

    def propose(self, request: Request, report: Report | None = None) -> Proposal[S]:
        """Compute the result of a request without changing the state or the model."""
        if not self.retain:
            raise InputError(_NO_RETAIN_DATA)
        say = report or (lambda stage: None)
        (forget,) = self.prepare([request])
        with frozen(self.model), Account(self.model) as account:
            try:
                self._measure_untouched(say, account)
                proposal = self._propose(request.id, forget, say, account)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                raise InputError(
                    f"request {request.id!r} does not fit into the device's memory; "
                    f"{self.saves_memory}; nothing was changed"
                ) from error
            finally:
                # Also on an error or Ctrl-C, so that no candidate stays on the model.
                self._show_state()
        size = sum(tensor.nbytes for tensor in proposal.state.tensors().values())
        memory = {"peak": account.peak, "before": account.before, "state": size}
        outcome = replace(
            proposal.outcome,
            method=self.method,
            checked=self.config.use_guard,
            seconds=account.seconds(),
            memory=memory,
        )
        return Proposal(proposal.state, outcome)

    def adopt(self, proposal: Proposal[S]) -> None:
        """Make the result of a request current, accepted or not."""
        self.requests_seen += 1
        if proposal.outcome.accepted:
            self.is_untouched = False
            self.restore(proposal.state)
            after = proposal.outcome.guard_groups
            # A method that says nothing of the groups has them measured anew.
            if after.keys() == self._guard_groups.keys():
                self._guard_loss = GuardLoss(
                    proposal.outcome.guard_loss_after,
                    {name: losses["after"] for name, losses in after.items()},
                )

    def count_drift(self, untouched: float | None) -> None:
        """Hold requests to `drift_limit` too, counted from the untouched model's guard loss.

        If that is not known, the next request measures it. A session calls this; without it no
        limit acts on the whole stream.
        """
        self._counts_drift = True
        self.untouched_guard_loss = untouched

    def drift(self, guard_loss: float) -> Drift | None:
        """Return the total drift at a guard loss, if the untouched model's is known."""
        untouched = self.untouched_guard_loss
        return None if untouched is None else Drift(untouched, guard_loss, self.drift_limit)

    @property
    def drift_limit(self) -> float | None:
        """The limit on the total drift, if one acts."""
        acts = self._counts_drift and self.config.use_guard
        return self.config.drift_limit if acts else None

    def snapshot(self) -> S:
        """Return the current state, which is immutable."""
        return self.state

    def restore(self, state: S) -> None:
        """Make a state the current one, bit for bit."""
        # First, so that a state that does not fit leaves the present one.
        self.effect.show(state)
        self.state = state
        self._guard_loss = None

    @contextmanager
    def showing(self, state: S) -> Iterator[None]:
        """Let the model act by a state within a `with` block; the current one stays current."""
        with frozen(self.model):
            try:
                self.effect.show(state)
                yield
            finally:
                self._show_state()

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Let the model act as before the first request within a `with` block."""
        with frozen(self.model), self.effect.lifted():
            yield

    def answers(self, examples: list[Encoded]) -> Answers:
        """Return how well the model as it is now gives examples; no request learns of it."""
        passes = self.passes
        limits = passes.examples, passes.forward_tokens
        return evaluate_answers(self.model, examples, *limits, self.team, passes.overhead)

    def encode(self, examples: Sequence[Example], label: str) -> list[Encoded]:
        """Return the tokens of examples; an error names the one at fault."""
        return encode_all(examples, self.tokenizer, self.max_length, label)

    def save(self, path: str | Path) -> None:
        """Write the current state to a safetensors file."""
        seen = {"method": self.method, "requests_seen": str(self.requests_seen)}
        files.replace_file(Path(path), tensors_file(self.state.tensors(), seen))

    def load(self, path: str | Path) -> None:
        """Restore the state and the number of requests from a file."""
        from safetensors import safe_open

        path = Path(path)
        with safe_open(path, "pt") as file:
            facts = file.metadata() or {}
        if facts.get("method") != self.method:
            raise InputError(
                f"{path} is a state of method {facts.get('method')}, not of {self.method}"
            )
        state = self.read_state(load_tensors(path.read_bytes()))
        arrays = {name: tensor.cpu().numpy() for name, tensor in state.tensors().items()}
        if problem := self.config_class.state_problem(arrays, self.layout()):
            raise InputError(f"{path} is not a state of this model: {problem}")
        if lacking := sorted(self._needed() - arrays.keys()):
            raise InputError(
                f"{path} is not a state of these settings: it has no {lacking[0]}, which they need"
            )
        self.restore(state)
        self.requests_seen = int(facts["requests_seen"])

    def _show_state(self) -> None:
        try:
            self.effect.show(self.state)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            # If a pass ran out of memory, the error being raised still holds its tensors.
            free_all_of(error)
            self.effect.show(self.state)

    # For methods

    def _needed(self) -> Set[str]:
        """Return the names of the tensors that a state of these settings has."""
        return frozenset()

    def _guard_before(self, say: Report, account: Account) -> GuardLoss:
        """Return the guard loss of the current state, measured once."""
        if self._guard_loss is None:
            self.effect.show(self.state)
            self._guard_loss = self._timed_guard_loss(say, account)
        now = self._guard_loss
        if not math.isfinite(now.mean):
            raise InputError(
                f"the guard loss is {now.mean} before the request, so nothing was changed; "
                f"{OVERFLOW_HINT}"
            )
        if self._counts_drift and self.untouched_guard_loss is None:
            self.untouched_guard_loss = now.mean
        if now.mean > self._drift_ceiling:
            drift = self.drift(now.mean)
            assert drift is not None
            raise InputError(
                f"the drift limit is reached, so nothing was changed: {drift.words}. {MAKES_ROOM}"
            )
        return now

    def _measure_untouched(self, say: Report, account: Account) -> None:
        """Measure the untouched model's guard loss, unless the request's own check tells it."""
        if self._counts_drift and self.untouched_guard_loss is None and not self.is_untouched:
            with self.untouched():
                self.untouched_guard_loss = self._timed_guard_loss(say, account).mean

    @property
    def _drift_ceiling(self) -> float:
        """The largest mean guard loss of the whole stream."""
        return drift_ceiling(self.untouched_guard_loss, self.drift_limit)

    @property
    def _guard_groups(self) -> dict[str, list[int]]:
        """The places of every group's examples among the guard's; empty if they name none."""
        return places_by_group(self.guard)

    def _timed_guard_loss(self, say: Report, account: Account) -> GuardLoss:
        with account.time("guard"):
            say("checking the guard")
            return GuardLoss.of(self._losses(self._guard_encoded), self._guard_groups)

    def _losses(self, examples: list[Encoded]) -> torch.Tensor:
        """Return the loss of every example with the model as it is now."""
        passes = self.passes
        limits = passes.examples, passes.forward_tokens
        return evaluate_losses(self.model, examples, *limits, self.team, passes.overhead)

    def _mean_loss(self, examples: list[Encoded]) -> float:
        return float(self._losses(examples).mean())

    def _retain_sample(self, count: int, *why: object) -> list[Encoded]:
        """Return a seeded sample of retain examples, new for each request."""
        usable = self._usable()
        chosen = sample_indices(len(usable), count, "retain", self.seed, self.requests_seen, *why)
        return [usable[i] for i in chosen]

    def _usable(self) -> list[Encoded]:
        """Return the retain examples that requests may use."""
        return self._retain_encoded

    def _set_data(self, retain: Sequence[Example] | None, guard: Sequence[Example] | None) -> None:
        """Set the retain data and the guard examples."""
        if retain is None:
            self.retain, self._retain_encoded, self.guard, self._guard_encoded = [], [], [], []
            return
        if not retain:
            raise InputError(_NO_RETAIN_DATA)
        self.retain = list(retain)
        self._retain_encoded = self.encode(retain, "retain data")
        given = guard or self._guard_among(retain)
        self.guard = choose_guard(given, self.config.guard_examples, self.seed, spare=not guard)
        self._guard_encoded = self.encode(self.guard, "guard data")
        refuse_shared(self.reference, self.retain, REFERENCE, "retain data")
        refuse_shared(self.reference, self.guard, REFERENCE, "guard data")

    def _guard_among(self, retain: Sequence[Example]) -> Sequence[Example]:
        """Return the retain examples that guard examples are drawn from, if none were given."""
        return retain


def method_problem(method: Any) -> str:
    """Return what a method's class lacks or has wrong, or nothing."""
    if not (isinstance(method, type) and issubclass(method, Unlearner)):
        return f"it is not a subclass of {Unlearner.__module__}.Unlearner"
    missing = [name for name in ("label", "config_class") if not hasattr(method, name)]
    if missing := missing + sorted(method.__abstractmethods__):
        return f"its class does not define {', '.join(missing)}"
    settings: Any = method.config_class
    if not issubclass(settings, GuardedSettings):
        return f"its config_class is not a subclass of {GuardedSettings.__module__}.GuardedSettings"
    if settings.has_mask and "dormant_threshold" not in {item.name for item in fields(settings)}:
        return "its settings have has_mask, but no dormant_threshold"
    return ""


def choose_guard(examples: Sequence[Example], size: int, seed: int, spare: bool) -> list[Example]:
    """Return the guard examples: all, or a seeded sample, drawn once in the life of the state.

    The groups that examples name give one each in turn; with `spare`, for retain data, each keeps
    half as long as it can.
    """
    groups = [example.group for example in examples]
    return [examples[i] for i in sample_by_group(groups, size, "guard", seed, spare=spare)]
