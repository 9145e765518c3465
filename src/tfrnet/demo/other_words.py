"""Three of the demo's forgotten facts, asked for in other words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfrnet.audit.probe import chat_of
from tfrnet.audit.wordings import wordings
from tfrnet.data.items import Question
from tfrnet.demo.corpus import Fact
from tfrnet.evaluation.ranking import rank
from tfrnet.models.load import LoadedModel

# How each of them is asked, and of how many facts the one is taken that the model knows best so.
KINDS = {"question": "as a question", "cloze": "as a blank", "chat": "in a chat"}
_TRIED = 8


@dataclass(frozen=True)
class OtherWords:
    """A fact in other words: how it is asked, and its prompt."""

    kind: str
    prompt: str


def in_other_words(loaded: LoadedModel, facts: Sequence[Fact]) -> list[OtherWords]:
    """Return for each kind the fact whose answer the untouched model finds most likely."""
    found = []
    tried = facts[:_TRIED]
    for kind in KINDS:
        asked = [_question(fact, kind, loaded) for fact in tried]
        questions = [question for question in asked if question]
        if not questions:  # a model without a chat template
            continue
        rankings = rank(*loaded, questions, batch_size=32)
        likely = [ranking.log_likelihoods[ranking.gold] for ranking in rankings]
        found.append(OtherWords(kind, questions[likely.index(max(likely))].prompt))
    return found


def _question(fact: Fact, kind: str, loaded: LoadedModel) -> Question | None:
    """Return a fact as a question of a kind, with its right and wrong answers."""
    for wording in wordings(fact.example(), chat_of(loaded.tokenizer)):
        if wording.kind == kind:
            return Question(wording.example.prompt, (fact.answer, *fact.wrong))
    return None
