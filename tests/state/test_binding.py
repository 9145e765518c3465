"""A state is bound to its base model: to every bit of the weights, the dtype, the tokenizer."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from tests import tiny
from tfrnet.core.errors import StateError
from tfrnet.method_state import apply_state, verify_state
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.models.fingerprint import ModelFacts, fingerprint, tokenizer_digest
from tfrnet.pretrained import TFRNet
from tfrnet.session import Session

SMALL = TFRConfig.paper(guard_examples=4, retain_examples=4)
OF_BEFORE = Path(__file__).parents[1] / "fixtures" / "states" / "tfr-default"


@pytest.fixture(scope="module")
def state(tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bound") / "state"
    with Session(tiny.make_model(), tokenizer, folder, tiny.examples(8), config=SMALL) as session:
        session.forget(tiny.requests(1)[0])
    return folder


def permuted(tokenizer) -> PreTrainedTokenizerFast:
    """The same pieces under other numbers."""
    text = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary = text["model"]["vocab"]
    names = sorted(vocabulary, key=vocabulary.get)
    text["model"]["vocab"] |= {names[50]: 51, names[51]: 50}
    from tokenizers import Tokenizer

    other = Tokenizer.from_str(json.dumps(text))
    return PreTrainedTokenizerFast(tokenizer_object=other, eos_token=tokenizer.eos_token)


def test_another_tokenizer_is_refused(state: Path, tokenizer) -> None:
    other = permuted(tokenizer)
    assert tokenizer_digest(other) != tokenizer_digest(tokenizer)
    with pytest.raises(StateError, match="its tokenizer was another one"):
        Session(tiny.make_model(), other, state, tiny.examples(8))
    with pytest.raises(StateError, match="its tokenizer was another one"):
        apply_state(tiny.make_model(), state, tokenizer=other)
    with pytest.raises(StateError, match="its tokenizer was another one"):
        TFRNet.from_pretrained(tiny.make_model(), state, other)


def test_a_tokenizer_is_the_same_after_saving_and_loading(tokenizer, tmp_path: Path) -> None:
    tokenizer.save_pretrained(tmp_path)
    loaded = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert tokenizer_digest(loaded) == tokenizer_digest(tokenizer)
    loaded("a text", padding="max_length", max_length=20, truncation=True)
    assert tokenizer_digest(loaded) == tokenizer_digest(tokenizer)


def test_weights_that_were_rounded_are_refused(state: Path, tokenizer) -> None:
    rounded = tiny.make_model("llama", torch.bfloat16).float()
    assert fingerprint(rounded) == fingerprint(tiny.make_model())
    with pytest.raises(StateError, match="agree only when they are rounded to bfloat16"):
        Session(rounded, tokenizer, state, tiny.examples(8))


def test_another_dtype_is_refused_with_the_one_to_give(state: Path, tokenizer) -> None:
    with pytest.raises(StateError, match="made in float32, and the model is in bfloat16"):
        Session(tiny.make_model("llama", torch.bfloat16), tokenizer, state, tiny.examples(8))


def test_without_a_dtype_a_state_gets_the_one_that_it_was_made_in(
    tiny_folder: Path, tokenizer, tmp_path: Path
) -> None:
    model = tiny.make_model("llama", torch.bfloat16)
    with Session(model, tokenizer, tmp_path / "s", tiny.examples(8), config=SMALL):
        pass
    net = TFRNet.from_pretrained(str(tiny_folder), tmp_path / "s")
    assert net.model.dtype == torch.bfloat16


def test_architecture_layers_and_every_bit_are_part_of_the_facts() -> None:
    facts = ModelFacts.of(tiny.make_model())
    assert (facts.architecture, facts.layers, facts.dtype) == ("LlamaForCausalLM", 3, "float32")
    changed = tiny.make_model()
    with torch.no_grad():
        bits = changed.model.layers[1].mlp.up_proj.weight.view(torch.int32)
        bits[3, 5] ^= 1
    assert fingerprint(changed) == fingerprint(tiny.make_model())
    assert asdict(ModelFacts.of(changed)) | {"weights": ""} == asdict(facts) | {"weights": ""}
    assert ModelFacts.of(changed) != facts


def test_verify_says_what_a_state_is_bound_to(state: Path, tmp_path: Path) -> None:
    (check,) = [check for check in verify_state(state) if check.name == "base model"]
    for name in ("architecture", "layers", "dtype", "weights", "tokenizer"):
        assert name in check.detail
    before = Path(shutil.copytree(OF_BEFORE, tmp_path / "before"))
    (check,) = [check for check in verify_state(before) if check.name == "base model"]
    assert check.passed
    assert "did not bind tokenizer, dtype and number of layers" in check.detail


def test_settings_and_buffers_that_few_models_have_are_among_the_facts() -> None:
    model = tiny.make_model("gemma3")
    facts, seen = ModelFacts.of(model), set()
    for name, value in {
        "layer_types": ["full_attention"] * model.config.num_hidden_layers,
        "query_pre_attn_scalar": 7,
        "final_logit_softcapping": 30.0,
        "hidden_activation": "relu",
    }.items():
        before = getattr(model.config, name)
        assert before != value
        setattr(model.config, name, value)
        seen.add(ModelFacts.of(model).weights)
        setattr(model.config, name, before)
    assert ModelFacts.of(model) == facts
    model.register_buffer("bias_of_experts", torch.zeros(3))
    seen.add(ModelFacts.of(model).weights)
    model.bias_of_experts[1] = 1
    seen.add(ModelFacts.of(model).weights)
    assert len(seen - {facts.weights}) == 6
    model.register_buffer("recomputed", torch.zeros(3), persistent=False)
    assert ModelFacts.of(model).weights in seen
