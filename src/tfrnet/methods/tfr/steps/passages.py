"""Which tokens of a passage the model knows by heart, and how likely they would be otherwise.

Beyond the paper. A passage has no prompt to which there could be other answers. Instead each of its
tokens is read once more with only the few tokens before it in view. In text that a model does not
know, everything before those still makes a token somewhat likelier; how much, everyday sentences
show. A token that is likelier than that by more than a nat is known by heart, unless the text has
already said it after the same token.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from tfrnet.core.team import Tensors
from tfrnet.data.examples import Encoded, tokenise
from tfrnet.data.general import general_texts
from tfrnet.methods.tfr.scoring import ScoreOptions
from tfrnet.methods.tfr.steps.levels import Form, Goal
from tfrnet.methods.tfr.steps.margins import SMALLEST_LOSS, log_odds
from tfrnet.methods.tfr.steps.neighbours import of_all
from tfrnet.models.forward import Batch, answer_logits, fitting_length, token_losses

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Losses = Callable[[list[Encoded]], torch.Tensor]

# So many tokens tell how a text goes on, but hardly which text it is.
_IN_VIEW = 2
# The nats by which a token must be likelier than expected to count as known by heart.
_KNOWN = 1.0
# More nats than the same loss differs by when other examples are beside it.
_ROUNDING = 0.01
# The most tokens of an everyday sentence; none has so many but with a tokenizer of single letters.
_LONGEST = 64


class PassageReader:
    """Reads passages under the untouched model; everyday sentences are read once for all."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self._model = model
        self._tokenizer = tokenizer
        # The loss of text that nobody knows by heart, as a share of that with little in view.
        self._context_share: float | None = None

    def goals(
        self, passages: Sequence[Encoded], losses: Losses, options: ScoreOptions
    ) -> list[Goal]:
        """Return which tokens of each passage are to be forgotten, and how far."""
        if not passages:
            return []
        if self._context_share is None:
            texts = everyday_texts(self._tokenizer, fitting_length(self._model, _LONGEST))
            whole = torch.cat(losses_by_token(self._model, texts, options))
            parts = torch.cat(self._little_in_view(texts, losses))
            self._context_share = float(whole.sum() / parts.sum())
        return [
            goal_of(own, self._context_share * part, repeated(passage))
            for passage, own, part in zip(
                passages,
                losses_by_token(self._model, passages, options),
                self._little_in_view(passages, losses),
                strict=True,
            )
        ]

    def _little_in_view(self, texts: Sequence[Encoded], losses: Losses) -> list[torch.Tensor]:
        special = self._tokenizer.all_special_ids
        parts = [part for text in texts for part in in_view(text, special)]
        each = {part: place for place, part in enumerate(dict.fromkeys(parts))}
        found = losses(list(each)).float().cpu()[[each[part] for part in parts]]
        return list(torch.split(found, [text.answer_length for text in texts]))


def goal_of(losses: torch.Tensor, expected: torch.Tensor, copied: Collection[int] = ()) -> Goal:
    """Return the goal of a passage, given the loss of each token and that of unknown text. [T].

    At the places `copied` the model may have the token from the text itself.
    """
    likelier = (losses < expected - _KNOWN).nonzero().flatten().tolist()
    if known := [place for place in likelier if place not in copied]:
        level = log_odds(expected[known].mean())
        return Goal(Form((), by_heart=tuple(known)), float(level))
    # Where it is now; a little above, so that rounding does not matter.
    return Goal(Form(()), float(log_odds((losses.mean() - _ROUNDING).clamp(min=SMALLEST_LOSS))))


def repeated(text: Encoded) -> set[int]:
    """Return the places of the answer where the same two tokens stood before in the text."""
    seen: set[tuple[int, int]] = set()
    found = set()
    for place, pair in enumerate(pairwise(text.ids), start=1):
        if pair in seen and place >= text.answer_start:
            found.add(place - text.answer_start)
        seen.add(pair)
    return found


def everyday_texts(tokenizer: PreTrainedTokenizerBase, longest: int) -> list[Encoded]:
    """Return everyday sentences in several languages, and code, no longer than so many tokens."""
    texts = [text for kind in general_texts().values() for text in kind]
    return [Encoded(tuple(tokenise(text, tokenizer)[:longest]), 1) for text in texts]


def in_view(text: Encoded, special: Collection[int]) -> list[Encoded]:
    """Return each token of a text with no more than the few before it, and a special first one."""
    first = text.ids[:1] if text.ids[0] in special else ()
    found = []
    for place in range(text.answer_start, len(text.ids)):
        start = max(len(first), place - _IN_VIEW)
        seen = (*first, *text.ids[start:place])
        found.append(Encoded((*seen, text.ids[place]), len(seen)))
    return found


def losses_by_token(
    model: PreTrainedModel, texts: Sequence[Encoded], options: ScoreOptions
) -> list[torch.Tensor]:
    """Return the loss of every token of each text, on the CPU."""
    sizes = [text.answer_length for text in texts]
    longest = max(sizes)

    def of_batch(batch: Batch) -> Tensors:
        parts = torch.split(
            token_losses(answer_logits(model, batch), batch.targets), batch.answer_tokens.tolist()
        )
        rows = [torch.nn.functional.pad(part, (0, longest - len(part))) for part in parts]
        return (torch.stack(rows).float().cpu(),)

    with torch.no_grad():
        (found,) = of_all(model, texts, options, of_batch)
    return [row[:size] for row, size in zip(found, sizes, strict=True)]
