"""The model as it ships for llama.cpp: the attack measures with the weights of the very file."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, quants
from transformers import AutoTokenizer

from tests.datasets import made_up_folder
from tests.exports import few_changed, masked
from tests.llamacpp import install_quantiser, small_llama
from tfrnet.core.errors import InputError
from tfrnet.data.protocol import Sizes, make_split
from tfrnet.data.sources import Source
from tfrnet.evaluation.attacking.subject import AttackOptions, Subject
from tfrnet.evaluation.attacks import gguf as attack
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.robustness import attacks_that_fit, check_attacks, run_attacks
from tfrnet.masking.digest import model_digest
from tfrnet.models.load import LoadedModel, model_folder

SIZES = Sizes(requests=4, request_size=2, forget_eval=6, heldout=9, retain=(4, 4), guard=(2, 2))


@pytest.fixture
def subject(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(model_folder("smollm2-135m"))
    # As a model that was loaded has them.
    loaded = {"architectures": ["LlamaForCausalLM"], "dtype": "float32"}
    model = small_llama(
        tokenizer, hidden_size=256, intermediate_size=256, num_hidden_layers=1, **loaded
    )
    split = make_split("openbookqa", 2, Source("folder", made_up_folder(tmp_path / "data")), SIZES)
    with masked(model, few_changed(model, 9)) as mask:
        yield Subject(Evaluator(LoadedModel(model, tokenizer)), mask, split, AttackOptions(limit=2))


def eight_bits(weight: torch.Tensor) -> torch.Tensor:
    """Round as the converter does, by the package that defines the format."""
    kind = GGMLQuantizationType.Q8_0
    rounded = quants.dequantize(quants.quantize(weight.numpy().astype(np.float32), kind), kind)
    return torch.from_numpy(rounded)


@pytest.mark.slow
def test_the_weights_are_those_of_the_file(subject, tmp_path, monkeypatch):
    install_quantiser(tmp_path, monkeypatch)
    measured = []

    class Watched(Evaluator):
        def score(self, *arguments, **named):
            if self is not subject.evaluator:
                measured.append(
                    {n: p.detach().clone() for n, p in self.loaded.model.named_parameters()}
                )
            return super().score(*arguments, **named)

    before = model_digest(subject.model)
    with subject.unlearned():
        folded = {name: p.detach().clone() for name, p in subject.model.named_parameters()}
    with subject.untouched():
        original = {name: p.detach().clone() for name, p in subject.model.named_parameters()}
    monkeypatch.setattr(attack, "Evaluator", Watched)
    rows = run_attacks(subject, ["gguf"])
    assert [(row.attack, row.variant) for row in rows] == [("gguf", "Q8_0"), ("gguf", "Q4_K_M")]
    assert all(row.untouched_attacked is not None for row in rows)
    eight, control, four, _ = measured
    for weights, wanted in ((eight, folded), (control, original)):
        assert weights.keys() == wanted.keys()
        for name, weight in wanted.items():
            expected = eight_bits(weight) if weight.dim() == 2 else weight
            torch.testing.assert_close(weights[name], expected, rtol=0, atol=1e-6)
    for name, weight in folded.items():
        if weight.dim() == 2:
            rough = float((four[name] - weight).norm() / weight.norm())
            assert 0.01 < rough < 0.15, name
    # Nothing is left of it on the model.
    assert model_digest(subject.model) == before


def test_it_runs_only_where_it_is_named_and_can(monkeypatch):
    assert "gguf" not in attacks_that_fit(has_mask=True)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="Q4_K_M needs llama-quantize on the PATH"):
        check_attacks(["prompts", "gguf"])
    check_attacks(["prompts"])
