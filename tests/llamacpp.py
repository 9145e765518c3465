"""llama.cpp by its Python binding: what it says, and how likely it finds a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import xllamacpp


class LlamaCpp:
    """A GGUF file, loaded."""

    def __init__(self, path: Path) -> None:
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx = 256
        params.n_parallel = 1
        params.warmup = False
        # As exact as transformers keeps it.
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        params.verbosity = 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        self._server = xllamacpp.Server(params)

    def continued(self, prompt: str, tokens: int) -> list[int]:
        """Return the tokens of a greedy continuation."""
        answer = self._complete(prompt, tokens)
        return [token["id"] for token in answer["logprobs"]["content"]]

    def log_probabilities(self, ids: list[int]) -> list[float]:
        """Return the log probability of each token of a text but the first, given those before.

        A bias makes the server choose the very token; the probability that it reports is the
        model's own, without it.
        """
        found = []
        for position in range(1, len(ids)):
            wanted = ids[position]
            answer = self._complete(ids[:position], 1, logit_bias=[[wanted, 1000.0]])
            (token,) = answer["logprobs"]["content"]
            assert token["id"] == wanted
            found.append(token["logprob"])
        return found

    def _complete(self, prompt: Any, tokens: int, **more: Any) -> dict[str, Any]:
        options = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "logprobs": 1}
        answer = self._server.handle_completions(options | {"ignore_eos": True} | more)
        return answer["choices"][0]
