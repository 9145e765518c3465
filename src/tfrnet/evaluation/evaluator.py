"""A model under evaluation, with batching, caching and progress reports."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfrnet.core.team import SOLO, Team
from tfrnet.data.examples import Encoded, tokenise
from tfrnet.evaluation.cache import Cache
from tfrnet.masking.digest import model_digest
from tfrnet.models.forward import input_device
from tfrnet.models.generation import continue_texts
from tfrnet.models.likelihood import score_answers
from tfrnet.models.load import LoadedModel
from tfrnet.models.token_scores import TokenScores


@dataclass
class Evaluator:
    """Scores answers and generates texts with one model; scores come from the cache where possible.

    Generated texts are never cached: they may be what a model was made to forget.

    The model's digest is computed at every call, so weights or masks may change between calls.
    """

    loaded: LoadedModel
    batch_size: int = 16
    cache: Cache | None = None
    advance: Callable[[int], None] | None = None
    team: Team = SOLO
    hits: int = field(default=0, init=False)

    def score(
        self, groups: Sequence[Sequence[Encoded]], moments: bool = False
    ) -> list[list[TokenScores]]:
        """Return the token scores of answers, grouped by prompt."""
        inputs = {
            "groups": [[[list(e.ids), e.answer_start] for e in group] for group in groups],
            "moments": moments,
        }

        def compute() -> Any:
            scores = score_answers(
                self.loaded.model, groups, self.batch_size, moments, self.advance, self.team
            )
            return [[answer.to_dict() for answer in group] for group in scores]

        values = self._cached("likelihood", inputs, compute, len(groups))
        return [[TokenScores.from_dict(answer) for answer in group] for group in values]

    def generate(
        self,
        prompts: Sequence[str],
        max_new_tokens: int,
        max_length: int | None = None,
        one_line: bool = False,
    ) -> list[str]:
        """Return greedy continuations; `max_length` bounds prompt and continuation together."""
        if not prompts:
            return []
        max_prompt = max_length - max_new_tokens if max_length else None
        if self.team.size > 1:
            tokens = [tokenise(prompt, self.loaded.tokenizer) for prompt in prompts]
            options = [max_new_tokens, max_prompt, one_line]
            self._agree("generation", [tokens, options], model_digest(self.loaded.model))
        return continue_texts(
            self.loaded,
            prompts,
            max_new_tokens,
            self.batch_size,
            max_prompt,
            one_line,
            self.advance,
            self.team,
        )

    def _cached(self, kind: str, inputs: Any, compute: Callable[[], Any], steps: int) -> Any:
        shared = self.team.size > 1
        digest = model_digest(self.loaded.model) if self.cache or shared else None
        if shared:
            self._agree(kind, inputs, digest)
        if self.cache is None or digest is None:
            return compute()
        key = self.cache.key(digest, kind, inputs, input_device(self.loaded.model).type)
        # All processes must take the same branch, even if their caches differ.
        value = self.team.leaders(self.cache.get(key) if self.team.leads else None)
        if value is None:
            value = compute()
            if self.team.leads:
                self.cache.put(key, value)
        else:
            self.hits += 1
            if self.advance:
                self.advance(steps)
        return value

    def _agree(self, kind: str, inputs: Any, digest: str | None) -> None:
        """Raise if processes, whose results are combined, differ in their model or inputs."""
        asked = hashlib.sha256(json.dumps([kind, inputs], sort_keys=True).encode()).hexdigest()
        self.team.agree({"what is asked": asked[:16], "the model": (digest or "unknown")[:16]})
