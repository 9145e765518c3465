"""The audit of each request in a session: figures of the model before and after it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import tiny
from tfrnet.audit.figures import Figures
from tfrnet.audit.probe import ProbeMaker, chat_of, spread
from tfrnet.data.examples import Example
from tfrnet.data.general import general_texts
from tfrnet.data.requests import Request
from tfrnet.models.forward import evaluate_answers
from tfrnet.session import Session
from tfrnet.state.store import StateStore

RETAIN = tiny.examples(20)
STREAM = tiny.requests(2)
# Long enough to forget, and free to: the tiny model has little to spare.
FORGETS = tiny.deep(
    guard_examples=6, retain_examples=6, steps=4, guard_relative=2.0, drift_limit=None
)


@pytest.fixture(scope="module")
def model():
    return tiny.make_trained_model()


def open_session(model, tokenizer, folder: Path, **options) -> Session:
    return Session(model, tokenizer, folder, RETAIN, **({"config": FORGETS} | options))


def given(session: Session, examples: list[Example]) -> int:
    encoded = session.unlearner.encode(examples, "test")
    return int(evaluate_answers(session.unlearner.model, encoded, 2).given.sum())


@pytest.fixture(scope="module")
def audited(model, tokenizer, tmp_path_factory: pytest.TempPathFactory):
    """A state of two audited requests, with the outcomes and what an own look found."""
    folder = tmp_path_factory.mktemp("audit") / "state"
    outcomes, counts = [], []
    with open_session(model, tokenizer, folder, audit=True) as session:
        for request in STREAM:
            before = given(session, list(request.examples))
            outcomes.append(session.forget(request))
            counts.append((before, given(session, list(request.examples))))
    return folder, outcomes, counts


def test_a_prompt_at_the_end_of_learnt_positions_leaves_room_for_what_is_shown(
    tokenizer, tmp_path
) -> None:
    request = Request("long", (Example("so " * 200, "old box"),))
    with open_session(
        tiny.make_model("gpt2"), tokenizer, tmp_path / "state", audit=True
    ) as session:
        assert session.unlearner.max_length == 128
        assert session.forget(request).audit


@pytest.mark.slow
def test_what_the_model_still_gives_is_counted(audited) -> None:
    _, outcomes, counts = audited
    for outcome, (before, after) in zip(outcomes, counts, strict=True):
        own = Figures.from_dict(outcome.audit).wordings["own"]
        assert (own.tried, own.before, own.after) == (3, before, after)
    assert counts[0][0] > counts[0][1]  # else the test would show nothing


def test_other_wordings_and_texts_are_looked_at(audited) -> None:
    _, outcomes, _ = audited
    figures = Figures.from_dict(outcomes[0].audit)
    assert set(figures.wordings) == {"own", "first_words", "question", "cloze"}
    assert set(figures.general) == set(general_texts())
    assert figures.kept is not None
    assert figures.kept.examples == 12
    assert figures.verdict.startswith("given in ")


def test_the_answers_are_for_the_screen_only(audited) -> None:
    folder, outcomes, _ = audited
    prompts = [prompt for prompt, _, _ in outcomes[0].answers]
    assert prompts == [example.prompt for example in STREAM[0].examples]
    assert any(before != after for _, before, after in outcomes[0].answers)
    assert "answers" not in outcomes[0].to_dict()
    ledger = (folder / "ledger.jsonl").read_text()
    for example in (e for request in STREAM for e in request.examples):
        assert example.prompt not in ledger
        assert example.answer not in ledger


def test_the_ledger_holds_the_figures(audited) -> None:
    folder, outcomes, _ = audited
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    assert [line["audit"] for line in lines[1:]] == [dict(o.audit) for o in outcomes]
    assert all(line["seconds"]["audit"] < line["seconds"]["total"] for line in lines[1:])


def test_an_audit_changes_nothing(audited, model, tokenizer, tmp_path: Path) -> None:
    folder, _, _ = audited
    with open_session(model, tokenizer, tmp_path / "state") as session:
        list(session.run(STREAM))
        assert "audit" not in session.store.entries[-1]
        assert session.store.position.digest == StateStore.open(folder).position.digest


def test_a_crash_in_the_audit_loses_nothing(
    model, tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes before the commit: the request is not applied, and can be asked for again."""
    folder = tmp_path / "state"
    with open_session(model, tokenizer, folder, audit=True) as session:
        before = given(session, list(STREAM[0].examples))
        real, calls = session.unlearner.answers, []

        def breaks(examples: list) -> object:
            calls.append(len(examples))
            if len(calls) == 2:
                raise RuntimeError("broken")
            return real(examples)

        monkeypatch.setattr(session.unlearner, "answers", breaks)
        with pytest.raises(RuntimeError, match="broken"):
            session.forget(STREAM[0])
        assert session.store.generation == 0
        # The candidate is off the model.
        assert given(session, list(STREAM[0].examples)) == before > 0
        assert session.forget(STREAM[0]).accepted


def test_one_word_prompts_have_only_their_own_words(model, tokenizer, tmp_path: Path) -> None:
    request = Request("short", (Example("Item", "7"),))
    with open_session(model, tokenizer, tmp_path / "state", audit=True) as session:
        outcome = session.forget(request)
    assert set(outcome.audit["wordings"]) == {"own"}
    nothing = Request("nothing", (Example("", "Two words", is_text=True),))
    with open_session(model, tokenizer, tmp_path / "other", audit=True) as session:
        outcome = session.forget(nothing)
    assert Figures.from_dict(outcome.audit).verdict.startswith("too short to be put into words")


def test_the_nearest_kept_examples_are_like_the_request(tokenizer) -> None:
    far = [Example("Bees make", f"honey {n}") for n in range(30)]
    near = tiny.examples(12)
    maker = ProbeMaker(tokenizer, 64, [*far, *near, *far])
    found = maker.nearest_kept(STREAM[0])
    wanted = {tuple(tokenizer(example.joined)["input_ids"]) for example in near}
    assert {example.ids for example in found} == wanted


def test_examples_are_spread_over_a_large_request() -> None:
    examples = tiny.examples(20)
    assert spread(examples, 4) == [examples[0], examples[5], examples[10], examples[15]]
    assert spread(examples[:2], 4) == examples[:2]


def test_a_chat_template_is_used_where_there_is_one(tokenizer) -> None:
    assert chat_of(tokenizer) is None
    with_chat = type(tokenizer)(
        tokenizer_object=tokenizer.backend_tokenizer,
        chat_template="{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[a]",
    )
    chat = chat_of(with_chat)
    assert chat is not None
    assert chat("Complete: X", "X") == "[user]Complete: X[a]X"
