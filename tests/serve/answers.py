"""Asking an engine, and what `generate` says to the same."""

from __future__ import annotations

import queue
from typing import Any

from tfrnet.models.generation import continue_texts
from tfrnet.models.load import LoadedModel
from tfrnet.serve.engine import Answer, Engine, Piece
from tfrnet.serve.sampling import Sampling

GREEDY = Sampling(temperature=0)


class Asked:
    """An answer that is being made."""

    def __init__(self, engine: Engine, loaded: LoadedModel, prompt: str, tokens: int, **more: Any):
        self.pieces: queue.Queue[Piece] = queue.Queue()
        ids = loaded.tokenizer(prompt)["input_ids"]
        self.answer = Answer(ids, tokens, self.pieces.put, **({"sampling": GREEDY} | more))
        engine.submit(self.answer)

    def all(self) -> list[Piece]:
        got = [self.pieces.get(timeout=30)]
        while got[-1].finish is None:
            got.append(self.pieces.get(timeout=30))
        return got

    def text(self) -> str:
        return "".join(piece.text for piece in self.all())


def alone(loaded: LoadedModel, prompt: str, tokens: int) -> str:
    return continue_texts(loaded, [prompt], tokens)[0]
