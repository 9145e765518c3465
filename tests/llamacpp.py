"""llama.cpp: a model that it knows, its quantiser, and its Python binding."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
import xllamacpp

from tests import llama_quantize


def small_llama(tokenizer: Any, **sizes: Any) -> Any:
    """Return a random model of an architecture that llama.cpp knows."""
    torch.manual_seed(0)
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True}
    config = transformers.LlamaConfig(vocab_size=len(tokenizer), **heads, **sizes)
    return transformers.LlamaForCausalLM(config).eval()


def install_quantiser(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Put llama.cpp's own quantiser on the PATH, in a folder of its own."""
    program = folder / "bin" / "llama-quantize"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n" + Path(llama_quantize.__file__).read_text())
    program.chmod(0o755)
    patch.setenv("PATH", str(program.parent), prepend=":")


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
