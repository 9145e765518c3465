"""What the demo tells, on a tiny model: the audit, the drift, and facts in other words."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from tests import tiny
from tests.serve.running import TEMPLATE
from tfrnet.cli.app import COMMANDS
from tfrnet.cli.commands.demo import _show
from tfrnet.cli.output import Output
from tfrnet.core.drift import Drift
from tfrnet.core.outcome import Outcome
from tfrnet.demo.corpus import load_facts, split
from tfrnet.demo.other_words import KINDS, in_other_words
from tfrnet.demo.story import Accuracies, Listener, Story, prepare_folder, quick, tell
from tfrnet.models.load import LoadedModel


def test_the_story_has_the_audit_the_drift_and_other_words(tmp_path: Path) -> None:
    loaded = LoadedModel(tiny.make_model(), tiny.make_tokenizer())
    parts = split(load_facts(), "capitals", requests=1, per_request=2, kept=2, others=4)
    parts = replace(parts, retain=parts.retain[:20])
    heard: list[tuple[Outcome, Drift | None]] = []
    listener = Listener(lambda text: None, lambda figures: None, lambda *told: heard.append(told))
    prepare_folder(tmp_path / "demo")
    story = tell(loaded, "tiny", parts, tmp_path / "demo", listener, quick("default"))
    ((outcome, drift),) = heard
    assert outcome.audit
    assert story.drift == drift
    assert drift is not None
    assert len(story.generations) == 3
    # The tiny tokenizer has no chat template.
    assert [row["asked"] for row in story.other_words] == ["as a question", "as a blank"]
    written = json.loads((tmp_path / "demo" / "demo.json").read_text())
    assert written["other_words"] == story.other_words
    assert written["drift"] == drift.ratio


def test_it_says_what_to_try_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "demo"
    prepare_folder(out)
    accuracies = Accuracies(100.0, 100.0, 100.0)
    story = Story(accuracies, accuracies, [], [], [], None, 1.0, None)
    (out / "state").mkdir()
    for name in ("requests.jsonl", "retain.jsonl"):
        (out / name).touch()
    _show(story, "capitals", out, Output(as_json=False))
    _, _, told = capsys.readouterr().out.partition("what to try next:\n")
    tries = [shlex.split(line.partition("tfrnet ")[2]) for line in told.splitlines()]
    assert [words[0] for words in tries] == [
        *("generate", "chat", "audit", "report", "export", "rollback", "init")
    ]
    assert set(COMMANDS.names()).issuperset(words[0] for words in tries)
    # What they name is there, but for what an export will make.
    named = [Path(word) for words in tries for word in words if word.startswith(str(out))]
    assert {path.name for path in named if not path.exists()} == {"model"}


def test_each_kind_asks_for_the_fact_that_is_known_best_so() -> None:
    tokenizer = tiny.make_tokenizer()
    tokenizer.chat_template = TEMPLATE
    facts = [fact for fact in load_facts() if fact.topic == "capitals"][:3]
    found = in_other_words(LoadedModel(tiny.make_model(), tokenizer), facts)
    assert [each.kind for each in found] == list(KINDS)
    for each in found:
        assert any(fact.prompt in each.prompt for fact in facts)
        assert not any(fact.answer in each.prompt for fact in facts)
