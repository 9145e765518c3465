"""GGUF: the files that people run in llama.cpp, in eight and four bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tfrnet.evaluation.attacking.attack import Attack
from tfrnet.evaluation.attacking.subject import Attacked, Subject
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.tasks import evaluate_task
from tfrnet.export.formats.dense import save_dense
from tfrnet.export.formats.gguf import refuse_quant, write_gguf
from tfrnet.models.forward import input_device
from tfrnet.models.gguf import unpacked_gguf
from tfrnet.models.load import LoadedModel

QUANTS = ("Q8_0", "Q4_K_M")


def refuse() -> None:
    """Raise if a program of llama.cpp is missing."""
    for quant in QUANTS:
        refuse_quant(quant)


def gguf(subject: Subject) -> Iterator[Attacked]:
    """Write the model as a file of llama.cpp, and measure with the weights that are in it."""
    for quant in QUANTS:
        with subject.unlearned():
            attacked = _accuracy(subject, quant)
        with subject.untouched():
            control = _accuracy(subject, quant)
        yield subject.row("gguf", quant, attacked, control)


def _accuracy(subject: Subject, quant: str) -> float:
    tokenizer = subject.evaluator.loaded.tokenizer
    with TemporaryDirectory(prefix="tfrnet-") as folder:
        dense, file = Path(folder, "dense"), Path(folder, "model.gguf")
        save_dense(subject.model, tokenizer, dense)
        write_gguf(dense, file, quant)
        model = unpacked_gguf(file).to(input_device(subject.model)).eval()
        evaluator = Evaluator(LoadedModel(model, tokenizer), subject.evaluator.batch_size)
        length = subject.options.max_length
        return evaluate_task(evaluator, subject.task, subject.hidden, "attacked", length).accuracy


ATTACK = Attack("gguf", gguf, rank=3, on_request=True, refuse=refuse)
