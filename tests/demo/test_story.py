"""What the demo tells, on a tiny model: the audit, the drift, and facts in other words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tests import tiny
from tests.serve.running import TEMPLATE
from tfrnet.core.drift import Drift
from tfrnet.core.outcome import Outcome
from tfrnet.demo.corpus import load_facts, split
from tfrnet.demo.other_words import KINDS, in_other_words
from tfrnet.demo.story import Listener, prepare_folder, quick, tell
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


def test_each_kind_asks_for_the_fact_that_is_known_best_so() -> None:
    tokenizer = tiny.make_tokenizer()
    tokenizer.chat_template = TEMPLATE
    facts = [fact for fact in load_facts() if fact.topic == "capitals"][:3]
    found = in_other_words(LoadedModel(tiny.make_model(), tokenizer), facts)
    assert [each.kind for each in found] == list(KINDS)
    for each in found:
        assert any(fact.prompt in each.prompt for fact in facts)
        assert not any(fact.answer in each.prompt for fact in facts)
