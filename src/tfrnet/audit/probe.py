"""What an audit measures of requests: their wordings, the kept examples nearest to them, general
text."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfrnet.audit.wordings import Chat, Kind, wordings
from tfrnet.core.errors import InputError
from tfrnet.data.examples import Encoded, Example, encode, encode_all
from tfrnet.data.general import general_texts
from tfrnet.data.likeness import nearest, trigrams
from tfrnet.data.requests import Request

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# So many examples of a request are put into other words, spread over it.
_MOST_EXAMPLES = 4
# So many of the kept examples that are nearest to a request are looked at.
_NEAREST = 12
# So many general texts of each kind are measured.
_TEXTS = 4


@dataclass(frozen=True)
class Asked:
    """One wording as tokens."""

    kind: Kind
    encoded: Encoded


class ProbeMaker:
    """Makes the probes of requests on one model, given the data to keep."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, max_length: int, kept: Sequence[Example]
    ) -> None:
        self._tokenizer = tokenizer
        self._max_length = max_length
        self._kept = list(dict.fromkeys(kept))
        self._kept_trigrams = [trigrams(example.joined) for example in self._kept]
        self.general = {
            kind: fitting
            for kind, texts in general_texts().items()
            if (
                fitting := self._fitting(
                    [Example("", text, is_text=True) for text in texts[:_TEXTS]]
                )
            )
        }

    def wordings(self, request: Request) -> list[Asked]:
        """Return a request in its own and in other words; what would not fit is left out."""
        chat = chat_of(self._tokenizer)
        return [
            Asked(wording.kind, encoded)
            for example in spread(request.examples, _MOST_EXAMPLES)
            for wording in wordings(example, chat)
            for encoded in self._fitting([wording.example])
        ]

    def nearest_kept(self, request: Request) -> list[Encoded]:
        """Return the kept examples that are most like a request by their characters."""
        wanted = [example.joined for example in request.examples]
        chosen = nearest(wanted, self._kept_trigrams, _NEAREST)
        examples = [self._kept[i] for i in chosen]
        return encode_all(examples, self._tokenizer, self._max_length, "retain data")

    def _fitting(self, examples: Sequence[Example]) -> list[Encoded]:
        """Encode the examples that are not too long."""
        found = []
        for example in examples:
            with suppress(InputError):
                found.append(encode(example, self._tokenizer, self._max_length))
        return found


def spread(examples: Sequence[Example], most: int) -> list[Example]:
    """Return at most so many examples, evenly spread."""
    count = min(len(examples), most)
    return [examples[i * len(examples) // count] for i in range(count)]


def chat_of(tokenizer: PreTrainedTokenizerBase) -> Chat | None:
    """Return how a model's chat template asks and begins to answer; None if it has none."""
    if not getattr(tokenizer, "chat_template", None):
        return None

    def chat(message: str, beginning: str) -> str:
        turns: list[dict[str, Any]] = [{"role": "user", "content": message}]
        asked: str = tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True
        )
        return asked + beginning

    return chat
