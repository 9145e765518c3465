"""The figures of an audit, numbers only as the ledger holds them, and their verdict in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from tfrnet.audit.change import Change
from tfrnet.data.general import NAMES


@dataclass(frozen=True)
class Given:
    """In how many wordings the model gave what is to be forgotten, before and after."""

    tried: int
    before: int
    after: int

    @classmethod
    def together(cls, several: Collection[Given]) -> Given:
        """Return the counts of several added up."""
        return cls(
            sum(each.tried for each in several),
            sum(each.before for each in several),
            sum(each.after for each in several),
        )

    @property
    def count(self) -> str:
        """In how many wordings it was given, and is."""
        return f"{self.before} of {self.tried} wordings before, {self.after or 'none'} after"

    @property
    def words(self) -> str:
        """The same as part of a sentence, also if there was little to count."""
        if not self.tried:
            return "too short to be put into words of any kind"
        if not self.before:
            return f"given in none of {self.tried} wordings, even before"
        return f"given in {self.count}"


@dataclass(frozen=True)
class Figures:
    """What an audit found: wordings by kind, the nearest kept examples, general text by kind."""

    wordings: Mapping[str, Given] = field(default_factory=dict)
    kept: Change | None = None
    general: Mapping[str, Change] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read figures from a line of the ledger."""
        return cls(
            {kind: Given(**given) for kind, given in values["wordings"].items()},
            Change.from_dict(values["kept"]) if values["kept"] else None,
            {kind: Change.from_dict(change) for kind, change in values["general"].items()},
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain numbers."""
        return asdict(self)

    @property
    def all_wordings(self) -> Given:
        """The wordings of all kinds together."""
        return Given.together(self.wordings.values())

    @property
    def verdict(self) -> str:
        """What the figures say, in plain words."""
        parts = [self._forgotten(), self._kept(), self.verdict_on_text]
        return "; ".join(part for part in parts if part)

    def _forgotten(self) -> str:
        text = self.all_wordings.words
        if not self.all_wordings.before:
            return text
        left = [_KINDS[kind] for kind, given in self.wordings.items() if given.after]
        if left:
            text += f", still given: {', '.join(left)}"
        if set(self.wordings) == {"own"}:
            text += ", its own only, since its prompts are too short for others"
        return text

    def _kept(self) -> str:
        return f"nearest kept data {self.kept.words}" if self.kept else ""

    @property
    def verdict_on_text(self) -> str:
        """What became of general text: nothing, or which kinds got worse or better."""
        changed: dict[str, list[str]] = {}
        for kind, change in self.general.items():
            if not change.is_unchanged:
                changed.setdefault(change.words, []).append(_text_name(kind))
        if not changed:
            return "general text unchanged" if self.general else ""
        return ", ".join(f"{' and '.join(kinds)} {words}" for words, kinds in changed.items())


_KINDS = {
    "own": "in its own words",
    "question": "as a question",
    "cloze": "as a blank to fill in",
    "order": "with clauses in another order",
    "chat": "in a chat",
    "first_words": "from its first words",
    "part": "from the middle of a passage",
}


def given_by_kind(
    kinds: Sequence[str], before: Sequence[bool], after: Sequence[bool]
) -> dict[str, Given]:
    """Count the wordings of each kind, and those that gave the answer."""
    tried = Counter(kinds)
    first = Counter(kind for kind, given in zip(kinds, before, strict=True) if given)
    last = Counter(kind for kind, given in zip(kinds, after, strict=True) if given)
    return {kind: Given(tried[kind], first[kind], last[kind]) for kind in tried}


def _text_name(kind: str) -> str:
    name = NAMES.get(kind, kind)
    return name if kind == "code" else f"{name} text"
