"""A method on a live model with its state on disk."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfrnet.audit.observer import Observer, Origin
from tfrnet.core.clock import now
from tfrnet.core.errors import InputError, StateError, TfrnetWarning
from tfrnet.core.outcome import Outcome
from tfrnet.core.settings import Settings
from tfrnet.core.stage import Report
from tfrnet.core.team import SOLO, Team
from tfrnet.core.versions import versions
from tfrnet.data.anchors import without_answers
from tfrnet.data.examples import Example, wrong_examples
from tfrnet.data.own_text import OwnText
from tfrnet.data.requests import Request, check_request
from tfrnet.distributed.messages import Adopt, Begin, Propose, Restore
from tfrnet.distributed.shard import known_fingerprint
from tfrnet.method import DEFAULT, find_method
from tfrnet.method_state import (
    KnownGuard,
    needed_own_text,
    read_state,
    settings_of,
)
from tfrnet.models.fingerprint import tokenizer_digest
from tfrnet.models.load import LoadedModel
from tfrnet.models.own_text import write_own_text
from tfrnet.models.passes import DEFAULT_BATCH
from tfrnet.state.applied import is_applied, refuse_applied
from tfrnet.state.base_model import bare_name, remember_place
from tfrnet.state.digests import (
    example_digest,
    examples_digest,
    is_digest_of,
    request_digest,
)
from tfrnet.state.manifest import Manifest
from tfrnet.state.new_state import NewState
from tfrnet.state.store import DEFAULT_KEEP, StateStore, open_or_place
from tfrnet.unlearner import Unlearner

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


# A state of TFR-Net takes a few MB; a method that trains all weights stores a whole model.
_MOST_BYTES = 4 << 30
_LEAST_KEPT = 2


class Session:
    """Applies requests one after another; each is on disk before the next begins.

        with Session(model, tokenizer, "state", retain) as session:
            outcome = session.forget(request)

    Creates the state if there is none. An existing one has its own method, config, seed and guard
    examples, and settings given here must agree with it. Without retain data the model's own text
    stands in for them: it is written when the state is made, and the state keeps it. `method` is
    one of `tfrnet.method_names()`; default TFR-Net. `key` is the file of the key that signs
    the ledger; default the file named by TFRNET_KEY. `reference` are examples like those of the
    requests that the model never saw, from which calibrated steps take their levels. `holdout` is
    measured at every request and used for nothing else; with `audit` each outcome says in how many
    other wordings the model still gives what was forgotten, and what became of text that is kept.
    `retire_guard` is how many of its first guard examples the state is to do without, in all: with
    the next request that is judged it goes on without those missing from the data. Instead of a
    folder, `state` may be a `StateStore` open for writing, which the session then owns.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        state: str | Path | StateStore | NewState,
        retain: Sequence[Example] | None = None,
        *,
        method: str | None = None,
        config: Settings | None = None,
        guard: Sequence[Example] | None = None,
        reference: Sequence[Example] = (),
        holdout: Sequence[Example] = (),
        audit: bool = False,
        retire_guard: int = 0,
        seed: int | None = None,
        batch_size: int | None = None,
        keep: int | None = None,
        key: str | Path | None = None,
        model_name: str = "",
        gradient_checkpointing: bool = False,
        compiled: bool = False,
        team: Team = SOLO,
    ) -> None:
        self.keep = keep
        self.team = team
        folder, known, place = _opened(state, key)
        # A new state that only a refused request was brought to is taken back.
        self._place = place
        try:
            # First, since a method may add modules to the model.
            base, facts = known_fingerprint(model)
            bound = asdict(facts) | {"tokenizer": tokenizer_digest(tokenizer)}
            if known:
                known.manifest.refuse_method(folder, method)
                made = settings_of(known.manifest)
                known.manifest.refuse_settings(folder, made, config, seed)
                known.manifest.refuse_base(folder, base)
                known.manifest.refuse_unbound(folder, bound)
            data = _Data.of(known, LoadedModel(model, tokenizer), retain, guard, retire_guard, team)
            self._own_text = data.own_text
            # Guard examples that the next request does without; the ledger tells of it then.
            self.retiring = list(data.retiring)
            chosen = find_method(known.manifest.method if known else method or DEFAULT)
            if config is not None and not isinstance(config, chosen.config_class):
                raise InputError(
                    f"method {chosen.method} takes a {chosen.config_class.__name__}, "
                    f"not a {type(config).__name__}"
                )
            if batch_size is None and known:
                batch_size = _batch_of_before(known, model)
            self.unlearner: Unlearner[Any] = chosen(
                model,
                tokenizer,
                data.retain,
                config or (made if known else chosen.config_class()),
                guard=data.guard,
                reference=reference,
                seed=(known.manifest.seed if known else 0) if seed is None else seed,
                batch_size=batch_size,
                gradient_checkpointing=gradient_checkpointing,
                compiled=compiled,
                team=team,
            )
            self.unlearner.refuse_unfinished()
        except BaseException:
            _let_go(known or place)
            raise
        name = model_name or getattr(model, "name_or_path", "") or type(model).__name__
        try:
            if known:
                known.manifest.refuse_layout(folder, self.unlearner.layout())
            self._observer = Observer(self.unlearner, holdout, audit)
            self._begin_together()
            known = known or StateStore.create(
                place or folder,
                lambda secret: self._manifest(bare_name(name), base, bound, secret),
                self.unlearner.state,
                key,
            )
            self.store = known
            remember_place(known.layout, name)
            self._sync()
        except BaseException:
            self.unlearner.detach()
            _let_go(known or place)
            raise

    def _begin_together(self) -> None:
        """Bring the other processes, if any, to the same point."""
        net, observer = self.unlearner, self._observer
        self.team.broadcast(
            Begin(
                *(net.method, net.config.to_dict(), net.retain, net.guard, net.reference),
                *(observer.holdout, observer.audits, net.seed, net.passes),
            )
        )
        with self.team.together():
            self.team.agree({})

    def _manifest(self, model_name: str, base: str, bound: dict[str, Any], key: bytes) -> Manifest:
        return Manifest(
            model=model_name,
            fingerprint=base,
            config=self.unlearner.config.to_dict(),
            channels=self.unlearner.layout(),
            seed=self.unlearner.seed,
            guard=[example_digest(example, key) for example in self.unlearner.guard],
            method=self.unlearner.method,
            bound=bound,
            own_text=self._own_text.to_dict() if self._own_text else None,
        )

    def _sync(self) -> None:
        """Restore the state from disk."""
        # What a full disk does not let us put right waits for the next opening; where the state
        # stands is known all the same.
        with suppress(OSError):
            self.store.refresh()
        state, seen = read_state(self.store), self.store.position.seen
        history = self.store.history
        is_untouched = self.store.position.digest == history.digests.get(0)
        self.retiring = [digest for digest in self.retiring if digest not in history.retired]
        # What is known of the guard's loss is of all of its examples.
        origin = Origin(is_untouched, None if self.retiring else history.guard_losses.get(0))
        if not self.team.is_over:
            self.team.broadcast(Restore(state.tensors(), seen, origin))
        self._observer.restore(state, seen, origin)

    def close(self) -> None:
        """Restore the original model and release the state."""
        self.unlearner.detach()
        self.store.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        refused = kind is not None and issubclass(kind, InputError)
        if refused and self._place and self.store.lines == 1:
            # Bound to the settings of a request that was not even tried, it would be in the way.
            self._place.remove_state()
        self.close()

    def is_applied(self, request: Request) -> bool:
        """Return whether a request is already applied; raise if the id has other examples."""
        return is_applied(self.store, request)

    def was_rejected(self, request: Request) -> bool:
        """Return whether this request was rejected in the state as it is, or on the way to it."""
        known = self.store.history.rejected.get(request.id)
        return known is not None and is_digest_of(known, request, self.store.key())

    def forget(
        self, request: Request, report: Report | None = None, received: str | None = None
    ) -> Outcome:
        """Apply one request and commit it, or leave everything as it was.

        `received` is when it came in, for the ledger; now without it.
        """
        check_request(request)
        refuse_applied(self.store, request)
        store, net, received = self.store, self.unlearner, received or now()
        self._leave_out_answers(request)
        self.team.broadcast(Propose(request))
        with self.team.together():  # an error in here reaches all processes
            proposal = self._observer.propose(request, report)
            if self.team.size > 1:
                self.team.agree({"the new state": proposal.state.digest()})
        record = proposal.outcome.to_dict() | {
            "received": received,
            "request_digest": request_digest(request, store.key()),
            "digest_key": "request",
            "examples": len(request.examples),
            "seed": net.seed,
            "dtype": str(net.model.dtype).removeprefix("torch."),
            "batch_size": net.batch_size,
            "batch_tokens": net.passes.tokens,
            "gradient_checkpointing": net.passes.gradient_checkpointing,
            "compiled": net.passes.compiled,
            "number": net.requests_seen + 1,
            "guard_loss_untouched": net.untouched_guard_loss,
            "drift_limit": net.drift_limit,
            "versions": versions(),
        }
        if self._own_text:
            record["own_text"] = _record_of(net.retain, store.key())
        if net.reference:
            record["reference"] = _record_of(net.reference, store.key())
        wrong = [each for example in request.examples for each in wrong_examples(example)]
        if wrong and net.config.effective().get("use_wrong_answers"):
            record["wrong_answers"] = _record_of(wrong, store.key())
        if record.get("holdout"):
            record["holdout"]["digest"] = examples_digest(self._observer.holdout, store.key())
        try:
            state = proposal.state if proposal.outcome.accepted else None
            if self.retiring:
                store.retire_guard(self.retiring)
                self.retiring = []
            store.commit(record, state, self.keep or _affordable(proposal.outcome.memory["state"]))
            self.team.broadcast(Adopt())
            self._observer.adopt(proposal)
        except BaseException:
            # The commit may or may not have reached the disk, so read it back.
            self._sync()
            raise
        if proposal.outcome.accepted:
            self._warn_of_drift(proposal.outcome.guard_loss_after)
        return proposal.outcome

    def _leave_out_answers(self, request: Request) -> None:
        """Of the model's own text, if that stands in for retain data, use what names no answer."""
        net = self.unlearner
        if self._own_text and (lines := _own_retain(self._own_text, request)) != net.retain:
            net.use_retain(lines)

    def _warn_of_drift(self, guard_loss: float) -> None:
        drift = self.unlearner.drift(guard_loss)
        if drift and drift.warning:
            warnings.warn(drift.warning, TfrnetWarning, stacklevel=3)

    def run(
        self,
        requests: Sequence[Request],
        retry_rejected: bool = False,
        report: Report | None = None,
        skipped: Callable[[Request], None] | None = None,
    ) -> Iterator[Outcome]:
        """Apply a stream and yield each outcome; requests done by an earlier run are skipped."""
        for request in requests:
            check_request(request)
        if self._own_text:
            for request in requests:
                self._leave_out_answers(request)
                self.unlearner.prepare([request])
        else:
            self.unlearner.prepare(requests)
        self._observer.refuse(requests)
        for request in requests:
            done = self.is_applied(request)
            if done or (self.was_rejected(request) and not retry_rejected):
                if skipped:
                    skipped(request)
                continue
            yield self.forget(request, report)

    def rollback(self, generation: int) -> None:
        """Return to an earlier generation."""
        try:
            self.store.rollback(generation, self.keep)
        finally:
            self._sync()

    def take_in(self, tensors: Mapping[str, torch.Tensor], record: Mapping[str, Any]) -> None:
        """Commit tensors that were made elsewhere as the next generation; the others stay."""
        net = self.unlearner
        state = net.read_state(net.state.tensors() | dict(tensors))
        arrays = {name: tensor.cpu().numpy() for name, tensor in state.tensors().items()}
        if problem := net.config_class.state_problem(arrays, net.layout()):
            raise InputError(f"the import does not fit the state: {problem}")
        try:
            self.store.commit({"kind": "import"} | dict(record), state, self.keep)
        finally:
            self._sync()


def _opened(
    state: str | Path | StateStore | NewState, key: str | Path | None
) -> tuple[Path, StateStore | None, NewState | None]:
    """Return a state's folder and the state itself, open for writing, or the place for it."""
    if isinstance(state, (str, Path)):
        state = open_or_place(Path(state), key)
        for repair in state.repairs if isinstance(state, StateStore) else ():
            folder = state.layout.folder
            warnings.warn(f"repaired {folder}: {repair}", TfrnetWarning, stacklevel=3)
    folder = state.layout.folder
    if isinstance(state, NewState):
        return folder, None, state
    if not state.is_writable:
        raise StateError(f"state {folder} must be opened for writing first")
    return folder, state, None


@dataclass(frozen=True)
class _Data:
    """Retain data and guard examples: those given, or the model's own text.

    `retiring` are the digests of guard examples that the state is to go on without.
    """

    retain: Sequence[Example]
    guard: Sequence[Example] | None
    own_text: OwnText | None = None
    retiring: Sequence[str] = ()

    @classmethod
    def of(
        cls,
        known: StateStore | None,
        loaded: LoadedModel,
        retain: Sequence[Example] | None,
        guard: Sequence[Example] | None,
        retire_guard: int,
        team: Team,
    ) -> _Data:
        own: OwnText | None = None
        if retain is None:
            if team.size > 1:
                raise InputError("without retain data (--retain) a run has one process")
            own = needed_own_text(known) if known else write_own_text(loaded)
            retain = own.retain
        if not known:
            if retire_guard:
                raise InputError("a new state has no guard examples to retire (--retire-guard)")
            return cls(retain, guard or (own.guard if own else None), own)
        found = KnownGuard.of(known, [*(guard or ()), *retain])
        retiring = found.to_retire(known.layout.folder, retire_guard)
        return cls(retain, found.examples, own, retiring)


def _own_retain(own_text: OwnText, request: Request) -> list[Example]:
    """Return the retain data of a request: the model's own text, unless it names an answer."""
    lines = without_answers(own_text.retain, request)
    if not lines:
        raise InputError(
            f"every line that the model wrote itself names an answer of request {request.id!r}; "
            "give retain data of your own (--retain)"
        )
    return lines


def _record_of(examples: Sequence[Example], key: bytes) -> dict[str, Any]:
    """Return what the ledger keeps of data: no words."""
    return {"examples": len(examples), "digest": examples_digest(examples, key)}


def _batch_of_before(known: StateStore, model: PreTrainedModel) -> int | None:
    """Return 8 for a state whose latest request had so many examples in every pass.

    All once had on a CPU. It goes on with that, so that its bits are those of before.
    """
    had_eight = known.history.latest_pass == (DEFAULT_BATCH, None)
    return DEFAULT_BATCH if had_eight and model.device.type == "cpu" else None


def _let_go(opened: StateStore | NewState | None) -> None:
    if opened:
        opened.close()


def _affordable(size: int) -> int | None:
    """Return how many generations of this many bytes to keep."""
    affordable = max(_LEAST_KEPT, _MOST_BYTES // max(size, 1))
    return affordable if affordable < DEFAULT_KEEP else None
