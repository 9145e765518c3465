"""Which tokens of a passage the model knows by heart, and how likely they would be otherwise.

Beyond the paper. A passage has no prompt to which there could be other answers. Instead each of its
tokens is read once more with only the few tokens before it in view. In text that a model does not
know, everything before those still makes a token somewhat likelier; how much, everyday sentences
show. A token that is likelier than that by more than a nat is known by heart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
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
# The most tokens of an everyday sentence; none has so many but with a tokenizer of single letters.
_LONGEST = 64


class PassageReader:
    """Reads passages under the untouched model; everyday sentences are read once for all."""

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, losses: Losses
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._losses = losses

    def goals(self, passages: Sequence[Encoded], options: ScoreOptions) -> list[Goal]:
        """Return which tokens of each passage are to be forgotten, and how far."""
        if not passages:
            return []
        return [
            goal_of(losses, self._context_share * self._losses(self._in_view(passage)).to(losses))
            for passage, losses in zip(
                passages, losses_by_token(self._model, passages, options), strict=True
            )
        ]

    @cached_property
    def _context_share(self) -> float:
        """The loss of text that nobody knows by heart, as a share of that with little in view."""
        longest = fitting_length(self._model, _LONGEST)
        texts = everyday_texts(self._tokenizer, longest)
        sizes = torch.tensor([each.answer_length for each in texts])
        parts = [part for each in texts for part in self._in_view(each)]
        return float((self._losses(texts).cpu() * sizes).sum() / self._losses(parts).cpu().sum())

    def _in_view(self, text: Encoded) -> list[Encoded]:
        return in_view(text, self._tokenizer.bos_token_id)


def goal_of(losses: torch.Tensor, expected: torch.Tensor) -> Goal:
    """Return the goal of a passage, given the loss of each token and that of unknown text. [T]."""
    known = (losses < expected - _KNOWN).nonzero().flatten()
    if len(known):
        return Goal(
            Form((), by_heart=tuple(known.tolist())), float(log_odds(expected[known].mean()))
        )
    # No token is likelier than this on average, so the passage is where it should be.
    return Goal(Form(()), float(log_odds((expected - _KNOWN).mean().clamp(min=SMALLEST_LOSS))))


def everyday_texts(tokenizer: PreTrainedTokenizerBase, longest: int) -> list[Encoded]:
    """Return everyday sentences in several languages, and code, no longer than so many tokens."""
    texts = [text for kind in general_texts().values() for text in kind]
    return [Encoded(tuple(tokenise(text, tokenizer)[:longest]), 1) for text in texts]


def in_view(text: Encoded, bos: int | None) -> list[Encoded]:
    """Return each token of a text with no more than the few tokens before it, and BOS."""
    first = text.ids[:1] if text.ids[0] == bos else ()
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
