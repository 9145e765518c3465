from dataclasses import replace

import pytest
import torch

from tests import tiny
from tfrnet.core.errors import InputError
from tfrnet.data.examples import encode
from tfrnet.models import finetune as module
from tfrnet.models.finetune import FinetuneOptions, finetune
from tfrnet.models.forward import evaluate_losses

OPTIONS = FinetuneOptions(rank=4, alpha=8, learning_rate=1e-2, epochs=6, batch_size=4)


def _rows(count=12):
    """Examples that the trained small model has not seen."""
    new = tiny.examples(count, offset=500)
    return [encode(example, tiny.make_tokenizer(), 64) for example in new]


def test_the_answers_are_learned_and_the_base_stays():
    model = tiny.make_trained_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    loss = float(evaluate_losses(model, _rows(), 4).mean())
    peft_model, log = finetune(model, _rows(), replace(OPTIONS, epochs=40))
    assert float(evaluate_losses(model, _rows(), 4).mean()) < loss / 2
    assert [record.epoch for record in log] == list(range(1, 41))
    assert log[-1].loss < log[0].loss
    assert not model.training
    base = peft_model.unload().state_dict()
    assert all(torch.equal(base[name], tensor) for name, tensor in before.items())


def test_the_same_seed_trains_the_same_adapter():
    losses = [finetune(tiny.make_model(), _rows(), OPTIONS)[1][-1].loss for _ in range(2)]
    assert losses[0] == losses[1]


def test_every_example_is_seen_once_an_epoch_in_batches_that_fit():
    rows = _rows(30)
    options = FinetuneOptions(batch_size=7, batch_tokens=100)
    plans = [list(module._batches(rows, options, epoch)) for epoch in (0, 1)]
    for plan in plans:
        assert sorted(i for batch in plan for i in batch) == list(range(30))
        assert max(map(len, plan)) <= 7
        assert all(max(len(rows[i].ids) for i in b) * len(b) <= 100 for b in plan if len(b) > 1)
    assert plans[0] != plans[1]


def test_the_learning_rate_rises_and_falls():
    factor = module._rise_and_fall(100, 0.1)
    values = [factor(step) for step in range(100)]
    assert values[0] == pytest.approx(0.1)
    assert max(values) == 1
    assert values.index(1) == 9
    assert values[99] == pytest.approx(1 / 90)
    assert values[10:] == sorted(values[10:], reverse=True)


def test_divergence_and_no_data_are_errors():
    with pytest.raises(InputError, match="nothing to train on"):
        finetune(tiny.make_model(), [], OPTIONS)
    model = tiny.make_model()
    with torch.no_grad():
        model.lm_head.weight[:] = float("nan")
    with pytest.raises(InputError, match="diverged in epoch 1"):
        finetune(model, _rows(), OPTIONS)
