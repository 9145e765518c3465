"""What two tokens of context tell of known and unknown passages: see notebook/passages.md.

    python -m benchmarks.passage_contexts RESULTS.json

For each set of texts: the mean loss of a token with all that stands before it and with two tokens
before it only, and the share of tokens that are known by heart.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import torch

from benchmarks.passages import KNOWN, UNKNOWN, read_passages
from tfrnet.data.examples import Encoded, encode_all
from tfrnet.methods.tfr.scoring import ScoreOptions
from tfrnet.methods.tfr.steps.passages import PassageReader, everyday_texts, in_view
from tfrnet.models.forward import evaluate_losses
from tfrnet.models.load import load_model

_BATCH = 16


def main() -> None:
    """Measure all sets and write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, tokenizer = load_model("smollm2-135m", "float32")

    def losses(examples: Sequence[Encoded]) -> torch.Tensor:
        return evaluate_losses(model, examples, _BATCH)

    passages = encode_all(read_passages().values(), tokenizer, 256, "passages")
    whole = losses(passages).tolist()
    sets = {
        "everyday": everyday_texts(tokenizer, 64),
        "known": [each for each, loss in zip(passages, whole, strict=True) if loss < KNOWN],
        "unknown": [each for each, loss in zip(passages, whole, strict=True) if loss > UNKNOWN],
    }
    reader = PassageReader(model, tokenizer)
    found = {}
    for name, texts in sets.items():
        goals = reader.goals(texts, losses, ScoreOptions(batch_size=_BATCH))
        parts = [losses(in_view(text, tokenizer.all_special_ids)) for text in texts]
        shares = [
            len(goal.form.by_heart) / text.answer_length
            for goal, text in zip(goals, texts, strict=True)
        ]
        found[name] = {
            "texts": len(texts),
            "whole": round(fmean(losses(texts).tolist()), 3),
            "in_view": round(fmean(float(part.mean()) for part in parts), 3),
            "by_heart": round(fmean(shares), 3),
        }
    options.results.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
