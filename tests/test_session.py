"""A session: requests one after another, each on disk before the next, resumable to the bit."""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests import tiny
from tests.states import story
from tfrnet.core import files
from tfrnet.core.errors import InputError, StateError, TfrnetWarning
from tfrnet.core.signing import read_key
from tfrnet.data.examples import Example
from tfrnet.data.requests import Request
from tfrnet.masking.mask import ChannelMask
from tfrnet.method_state import verify_state
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.session import Session
from tfrnet.state.certificate import make_certificate

RETAIN = tiny.examples(12)
STREAM = tiny.requests(4)
SMALL = tiny.deep(guard_examples=6, retain_examples=6, steps=1)
MIXED = TFRConfig.paper(guard_examples=6, retain_examples=6, guard_relative=1e-4, max_sparsity=0.2)

OpenSession = Callable[..., Session]


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model():
    return tiny.make_model("llama")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def open_session(model, tokenizer, folder: Path) -> OpenSession:
    def open_with(state: Path = folder, **options) -> Session:
        options = {"retain": RETAIN, "config": SMALL, "model": model} | options
        return Session(options.pop("model"), tokenizer, state, **options)

    return open_with


def generations(folder: Path) -> dict[str, dict[str, bytes]]:
    """The tensors of every generation, as bytes."""
    return {
        path.name: {name: value.numpy().tobytes() for name, value in load_file(path).items()}
        for path in sorted((folder / "generations").iterdir())
    }


def entries(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]


def reject_everything(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the guard loss rise with any mask but the present one."""
    real, present = session.unlearner._losses, session.unlearner.state.mask.clone()

    def worse(examples: list) -> torch.Tensor:
        shown = torch.equal(session.unlearner.mask.values, present)
        return real(examples) + (0.0 if shown else 100.0)

    monkeypatch.setattr(session.unlearner, "_losses", worse)


# When it was received


def test_a_certificate_says_when_a_request_was_first_received(
    open_session: OpenSession,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key, times = tmp_path / "key.pem", iter(range(100))
    clock = lambda: f"2026-11-16T09:{next(times):02d}:00+00:00"  # noqa: E731
    for module in ("tfrnet.session", "tfrnet.state.new_state", "tfrnet.state.store"):
        monkeypatch.setattr(f"{module}.now", clock)
    with open_session(key=key) as session:  # minute 0: the state is made
        with monkeypatch.context() as while_rejecting:
            reject_everything(session, while_rejecting)
            session.forget(STREAM[0])  # 1 and 2: received, and rejected
        session.forget(STREAM[0])  # 3 and 4: given again, and applied
        session.forget(STREAM[1], received="2026-11-01T08:00:00+00:00")  # 5: applied

    def times_of(request: Request) -> tuple[str, str]:
        manifest = session.store.manifest
        made = make_certificate(manifest, entries(folder), request.id, "later", read_key(key))
        return made["received"], made["applied"]

    assert times_of(STREAM[0]) == ("2026-11-16T09:01:00+00:00", "2026-11-16T09:04:00+00:00")
    assert times_of(STREAM[1]) == ("2026-11-01T08:00:00+00:00", "2026-11-16T09:05:00+00:00")


# The same request again


def test_a_request_that_is_applied_is_refused_and_nothing_changes(
    open_session: OpenSession, folder: Path
) -> None:
    with open_session() as session:
        session.forget(STREAM[0])
        before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        with pytest.raises(InputError, match="'request-0' is applied already; nothing was changed"):
            session.forget(STREAM[0])
        assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
        assert session.unlearner.requests_seen == 1


def test_an_applied_id_with_other_words_is_refused(open_session: OpenSession, folder: Path) -> None:
    other = Request(STREAM[0].id, STREAM[1].examples)
    with open_session() as session:
        session.forget(STREAM[0])
        lines = entries(folder)
        with pytest.raises(InputError, match="'request-0' was already applied with other examples"):
            session.forget(other)
        with pytest.raises(InputError, match="other examples"):
            list(session.run([other]))
        assert entries(folder) == lines


def test_a_rejected_id_with_other_words_is_not_taken_for_done(
    open_session: OpenSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is another request: try it or refuse it, but do not say that it was done before."""
    other = Request(STREAM[0].id, STREAM[1].examples)
    with open_session() as session:
        reject_everything(session, monkeypatch)
        assert not session.forget(STREAM[0]).accepted
    with open_session() as session:
        skipped: list[Request] = []
        try:
            tried = [outcome.id for outcome in session.run([other], skipped=skipped.append)]
        except InputError as error:
            assert STREAM[0].id in str(error)
        else:
            assert tried == [other.id]
        assert skipped == []


# Rejection


def test_a_rejected_request_leaves_every_tensor_and_is_in_the_ledger(
    open_session: OpenSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_session() as session:
        session.forget(STREAM[0])
        before, in_memory = generations(folder), session.unlearner.state.digest()
        reject_everything(session, monkeypatch)
        outcome = session.forget(STREAM[1])
        assert outcome.outcome == "rejected"
        assert "over the limit" in outcome.reason
        assert session.unlearner.state.digest() == in_memory
        assert torch.equal(session.unlearner.mask.values, session.unlearner.state.mask)
    assert generations(folder) == before
    last = entries(folder)[-1]
    assert (last["id"], last["outcome"], last["generation"]) == ("request-1", "rejected", 1)
    assert last["state_before"] == last["state_after"] == entries(folder)[1]["state_after"]
    assert all(check.passed for check in verify_state(folder))


def test_resuming_skips_accepted_and_rejected_requests(
    open_session: OpenSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_session() as session:
        session.forget(STREAM[0])
        reject_everything(session, monkeypatch)
        session.forget(STREAM[1])
    with open_session() as session:
        skipped: list[Request] = []
        outcomes = list(session.run(STREAM, skipped=skipped.append))
        assert skipped == STREAM[:2]
        assert [outcome.id for outcome in outcomes] == ["request-2", "request-3"]
    with open_session() as session:
        assert list(session.run(STREAM)) == []


def test_retry_rejected_tries_again_and_an_acceptance_then_counts(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_session() as session:
        reject_everything(session, monkeypatch)
        assert not session.forget(STREAM[0]).accepted
    with open_session() as session:
        assert session.was_rejected(STREAM[0])
        assert [o.accepted for o in session.run(STREAM[:1], retry_rejected=True)] == [True]
        assert not session.was_rejected(STREAM[0])
        assert session.is_applied(STREAM[0])
        assert list(session.run(STREAM[:1], retry_rejected=True)) == []


def test_a_request_that_was_rejected_before_another_stays_so_when_that_is_undone(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_session() as session:
        with monkeypatch.context() as rejecting:
            reject_everything(session, rejecting)
            session.forget(STREAM[0])
        assert session.forget(STREAM[1]).accepted
        session.rollback(0)
        # It was rejected in the very state that is there again.
        assert session.was_rejected(STREAM[0])
        assert not session.is_applied(STREAM[1])


def test_on_a_disk_that_stays_full_an_applied_request_is_said_and_shown(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = files.staged

    def full(path: Path, data: bytes, mode: int = 0o644) -> Path:
        if path.name == "current.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return staged(path, data, mode)

    with open_session() as session:
        monkeypatch.setattr(files, "staged", full)
        with pytest.raises(StateError, match="'request-0' is applied; the next opening"):
            session.forget(STREAM[0])
        assert session.is_applied(STREAM[0])
        assert session.unlearner.requests_seen == 1
        mask = session.unlearner.state.tensors()["mask"]
        assert bool((mask < 1).any())
        with pytest.raises(StateError, match="open it again"):
            session.forget(STREAM[1])
    monkeypatch.undo()
    with pytest.warns(TfrnetWarning, match="finished the commit"), open_session() as session:
        assert session.is_applied(STREAM[0])
        assert session.forget(STREAM[1]).accepted


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (Request("", STREAM[0].examples), "a request needs an id"),
        (Request("a\n\x1b[31m", STREAM[0].examples), "characters that cannot be printed"),
        (Request("x" * 500, STREAM[0].examples), "id is longer than"),
        (Request("n", (Example("How many?", 5),)), "answer must be text"),  # type: ignore[arg-type]
        (Request("s", (Example("Who?", "\ud800"),)), "half of a surrogate pair"),
    ],
)
def test_what_no_file_may_hold_is_refused_from_python_too(
    open_session: OpenSession, request_: Request, problem: str
) -> None:
    with open_session() as session:
        for apply in (session.forget, lambda each: list(session.run([STREAM[0], each]))):
            with pytest.raises(InputError, match=problem):
                apply(request_)
        assert session.store.history.applied == {}


def test_a_request_without_examples_is_refused(open_session: OpenSession) -> None:
    with (
        open_session() as session,
        pytest.raises(InputError, match="'empty': the request has no examples"),
    ):
        session.forget(Request("empty", ()))


# The guard


def test_guard_examples_stay_the_same_when_the_retain_data_grow(open_session: OpenSession) -> None:
    with open_session() as session:
        chosen = session.unlearner.guard
        loss = session.forget(STREAM[0]).guard_loss_after
    assert len(chosen) == 6 < len(RETAIN)
    grown = [*tiny.examples(9, offset=500), *reversed(RETAIN)]
    with open_session(retain=grown) as session:
        assert session.unlearner.guard == chosen
        assert session.forget(STREAM[1]).guard_loss_before == pytest.approx(loss, rel=1e-6)


def test_guard_examples_of_their_own_file_stay_the_same(open_session: OpenSession) -> None:
    guard = tiny.examples(10, offset=200)
    with open_session(guard=guard) as session:
        chosen = session.unlearner.guard
        assert set(chosen) <= set(guard)
    with open_session(guard=[*tiny.examples(5, offset=300), *guard]) as session:
        assert session.unlearner.guard == chosen
    with pytest.raises(InputError, match="6 of the 6 guard examples"):
        open_session()


def test_missing_guard_examples_are_an_error_that_counts_them(
    open_session: OpenSession, folder: Path
) -> None:
    with open_session() as session:
        lost = session.unlearner.guard[0]
        session.forget(STREAM[0])
    before = entries(folder)
    with pytest.raises(InputError, match=r"1 of the 6 guard examples .* --retire-guard 1 "):
        open_session(retain=[example for example in RETAIN if example != lost])
    assert entries(folder) == before
    open_session().close()  # nothing is locked


def test_overlap_with_the_retain_or_guard_data_is_refused_before_anything_is_applied(
    open_session: OpenSession, folder: Path
) -> None:
    overlapping = Request("late", (RETAIN[4],))
    with open_session() as session, pytest.raises(InputError, match=r"overlaps .* line 5 "):
        list(session.run([*STREAM, overlapping]))
    assert len(entries(folder)) == 1


# Words


def test_the_words_of_a_request_are_nowhere_in_the_state(
    open_session: OpenSession, folder: Path
) -> None:
    words = ["Zanzibarian", "quokka", "Ünterwasser", "xylophonist"]
    examples = (
        Example("The Zanzibarian owner of the quokka is", "Ünterwasser 77"),
        Example("", "A xylophonist lives here.", is_text=True),
    )
    with open_session() as session:
        session.forget(Request("only-the-id", examples))
        with pytest.raises(InputError):
            session.forget(Request("only-the-id", examples))
    everything = b"".join(
        str(path).encode() + path.read_bytes() for path in folder.rglob("*") if path.is_file()
    )
    assert b"only-the-id" in everything  # what is looked for can be found
    for word in words:
        for form in (word.encode(), json.dumps(word)[1:-1].encode(), word.encode("utf-16-le")):
            assert form not in everything
    # A plain hash would let anyone test a guess.
    for example in examples:
        for text in (example.joined, example.prompt, example.answer, json.dumps(example.to_dict())):
            assert hashlib.sha256(text.encode()).hexdigest().encode() not in everything


def test_the_same_words_have_another_digest_in_another_state(
    open_session: OpenSession, tmp_path: Path
) -> None:
    digests = set()
    for name in ("one", "other"):
        with open_session(tmp_path / name) as session:
            session.forget(STREAM[0])
        digests.add(entries(tmp_path / name)[1]["request_digest"])
    assert len(digests) == 2


# Losses that are not finite


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("request", "the loss on request 'odd' is"),
        ("guard", "the guard loss is"),
        ("retain", "the loss on the retain data is"),
    ],
)
def test_a_loss_that_is_not_finite_is_a_clear_error_and_changes_nothing(
    open_session: OpenSession, folder: Path, tokenizer, value: float, where: str, message: str
) -> None:
    model = tiny.make_model("llama")
    # Only texts with a tilde meet the broken weights.
    (tilde,) = tokenizer("~")["input_ids"]
    with torch.no_grad():
        model.model.embed_tokens.weight[tilde] = value
    broken = Example("A ~ is", "red")
    data = {"request": tiny.examples(1, 900), "retain": list(RETAIN), "guard": tiny.examples(6, 50)}
    data[where] = [broken, *data[where][1:]]
    with open_session(
        model=model,
        retain=data["retain"],
        guard=data["guard"],
        config=TFRConfig(guard_examples=6, retain_examples=12, steps=1),
    ) as session:
        with pytest.raises(InputError, match=f"{message} .*nothing was changed"):
            session.forget(Request("odd", tuple(data["request"])))
        assert len(entries(folder)) == 1
        assert torch.equal(
            session.unlearner.mask.values, torch.ones_like(session.unlearner.mask.values)
        )
        assert session.unlearner.requests_seen == 0
    assert list(generations(folder)) == ["00000000.safetensors"]


def test_another_answer_whose_loss_is_not_finite_is_no_reason_to_do_nothing(
    open_session: OpenSession, tokenizer
) -> None:
    model = tiny.make_model("llama")
    (tilde,) = tokenizer("~")["input_ids"]
    with torch.no_grad():
        model.model.embed_tokens.weight[tilde] = torch.nan
    asked = replace(tiny.examples(1, 900)[0], wrong_answers=("~ red", "~ green"))
    with (
        open_session(model=model, config=TFRConfig(guard_examples=6, steps=1)) as session,
        pytest.raises(InputError, match="the loss of other answers to the request's prompts"),
    ):
        session.forget(Request("odd", (asked,)))


def test_an_error_in_mid_request_leaves_the_mask_as_it_was(
    open_session: OpenSession, folder: Path
) -> None:
    """Ctrl-C at each stage of a request: model, memory and disk stay before the request."""
    with open_session() as session:
        session.forget(STREAM[0])
        mask, lines = session.unlearner.state.mask.clone(), entries(folder)
        stages: list[str] = []
        session.unlearner.propose(STREAM[1], stages.append)
        assert len(stages) >= 3
        for stop in range(len(stages)):
            seen: list[str] = []

            def interrupt(stage: str, seen: list[str] = seen, stop: int = stop) -> None:
                seen.append(stage)
                if len(seen) == stop + 1:
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                session.forget(STREAM[1], interrupt)
            assert torch.equal(session.unlearner.mask.values, mask)
            assert entries(folder) == lines
        assert session.forget(STREAM[1]).accepted


# Resuming


def _run(open_session: OpenSession, state: Path, config: TFRConfig, at_a_time: int) -> list[dict]:
    """Run the stream in sessions of so many requests and return what the ledger says of them."""
    stream = tiny.requests(5, size=2)
    for start in range(0, len(stream), at_a_time):
        # The first of them sees the whole stream's beginning again, as a resumed run does.
        with open_session(state, config=config if start == 0 else None) as session:
            list(session.run(stream[: start + at_a_time]))
    return story(state)


@pytest.mark.parametrize(
    ("config", "outcomes"),
    [
        (tiny.deep(guard_examples=6, retain_examples=5), {"accepted"}),
        pytest.param(
            TFRConfig.paper(guard_examples=6, retain_examples=5),
            {"accepted"},
            marks=pytest.mark.slow,
        ),
        (MIXED, {"accepted", "rejected"}),
        pytest.param(
            TFRConfig.preset("calibrated").with_overrides(["steps=3", "least_reached=0"]),
            {"accepted"},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            TFRConfig(steps=3),
            {"accepted"},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["deep", "paper", "with rejections", "calibrated", "default"],
)
def test_a_resumed_stream_is_bit_identical_to_an_uninterrupted_one(
    open_session: OpenSession, tmp_path: Path, config: TFRConfig, outcomes: set[str]
) -> None:
    whole = _run(open_session, tmp_path / "whole", config, at_a_time=5)
    assert {entry["outcome"] for entry in whole} == outcomes
    for at_a_time in (1, 3):
        state = tmp_path / f"by-{at_a_time}"
        assert _run(open_session, state, config, at_a_time) == whole
        assert generations(state) == generations(tmp_path / "whole")
        assert all(check.passed for check in verify_state(state))


@pytest.mark.parametrize("begun_with", [None, 8, 4])
def test_a_state_begun_with_eight_examples_in_a_pass_goes_on_with_eight(
    open_session: OpenSession, begun_with: int | None
) -> None:
    with open_session(batch_size=begun_with) as session:
        assert session.unlearner.batch_size == (begun_with or 64)
        session.forget(STREAM[0])
    with open_session() as session:
        assert session.unlearner.batch_size == (8 if begun_with == 8 else 64)
    with open_session(batch_size=3) as session:
        assert session.unlearner.batch_size == 3


def test_the_state_records_what_the_method_asks_for(
    open_session: OpenSession, folder: Path
) -> None:
    with open_session() as session:
        outcome = session.forget(STREAM[0])
    entry = entries(folder)[1]
    for name, value in outcome.to_dict().items():
        assert entry[name] == value
    assert entry["seed"] == 0
    assert entry["number"] == 1
    assert entry["examples"] == 3
    assert {"tfrnet", "torch", "transformers", "python"} <= set(entry["versions"])
    assert len(entry["top_channels"]) == 128


def test_rollback_puts_mask_and_memory_back_and_the_request_can_come_again(
    open_session: OpenSession, folder: Path
) -> None:
    with open_session() as session:
        session.forget(STREAM[0])
        first = session.unlearner.state.digest()
        session.forget(STREAM[1])
        session.rollback(1)
        assert session.unlearner.state.digest() == first
        assert torch.equal(session.unlearner.mask.values, session.unlearner.state.mask)
        assert session.is_applied(STREAM[0])
        assert not session.is_applied(STREAM[1])
        assert session.forget(STREAM[1]).accepted
        assert session.store.generation == 4
    files = generations(folder)
    assert files["00000003.safetensors"] == files["00000001.safetensors"]


def test_closing_leaves_the_model_as_it_was(open_session: OpenSession, model) -> None:
    ids = torch.arange(1, 20)[None]
    with torch.no_grad():
        before = model(ids).logits
        with open_session() as session:
            session.forget(STREAM[0])
            assert not torch.equal(model(ids).logits, before)
        assert torch.equal(model(ids).logits, before)


def test_a_repair_is_said_to_users_of_the_library_too(
    open_session: OpenSession, folder: Path
) -> None:
    with open_session() as session:
        session.forget(STREAM[0])
    with (folder / "ledger.jsonl").open("ab") as file:
        file.write(b'{"torn')
    with pytest.warns(TfrnetWarning, match="cut off a torn last line"):
        open_session().close()


@pytest.mark.slow
def test_compiled_layers_give_the_same_requests_and_the_ledger_says_so(
    open_session, tmp_path, monkeypatch
):
    # The compiler's first half alone: the second takes long and is tested with the mask.
    quick = functools.partialmethod(ChannelMask.compiled, "aot_eager")
    monkeypatch.setattr(ChannelMask, "compiled", quick)
    ledgers, masks = [], []
    for compiled in (False, True):
        with open_session(tmp_path / str(compiled), config=MIXED, compiled=compiled) as session:
            list(session.run(STREAM))
            ledgers.append([entry for entry in session.store.entries if "outcome" in entry])
            masks.append(session.unlearner.state.mask)
    assert [entry["compiled"] for ledger in ledgers for entry in ledger] == [False] * 4 + [True] * 4
    for plain, other in zip(*ledgers, strict=True):
        assert other["outcome"] == plain["outcome"]
        assert other["guard_loss_after"] == pytest.approx(plain["guard_loss_after"], rel=1e-4)
    torch.testing.assert_close(*masks)


def test_only_tfr_compiles(open_session):
    with pytest.raises(InputError, match="method ga cannot compile"):
        open_session(method="ga", config=None, compiled=True)


def test_what_cannot_be_compiled_is_refused_before_a_state_is_made(
    open_session, model, folder, monkeypatch
):
    # As accelerate does where it places a layer.
    monkeypatch.setitem(model.model.layers[0].__dict__, "forward", model.model.layers[0].forward)
    with pytest.raises(InputError, match="cannot be compiled"):
        open_session(compiled=True)
    assert not folder.exists()
