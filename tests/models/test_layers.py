"""Which layers are those of the text, and which modules are projections, in unusual models."""

import pytest
import torch
import transformers
from transformers.models.falcon.modeling_falcon import FalconLinear
from transformers.models.llama4.modeling_llama4 import Llama4Router
from transformers.models.phimoe.modeling_phimoe import PhimoeTopKRouter
from transformers.pytorch_utils import Conv1D

from tests import tiny
from tfrnet.core.errors import InputError
from tfrnet.models.layers import decoder_layers, hidden_after_each, is_projection

IDS = torch.arange(1, 25).reshape(2, 12)
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
}


def seeing():
    """Return a small model of text and images, whose two towers have as many layers."""
    text = {"vocab_size": tiny.VOCABULARY, "num_key_value_heads": 2, "head_dim": 8, **SIZES}
    config = transformers.Gemma3Config(
        text_config=text,
        vision_config={"image_size": 28, "patch_size": 14, **SIZES},
        mm_tokens_per_image=4,
        boi_token_index=300,
        eoi_token_index=301,
        image_token_index=302,
    )
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def test_the_layers_are_those_of_the_text_not_of_the_images():
    model = seeing()
    layers = decoder_layers(model)
    assert [type(layer).__name__ for layer in layers] == ["Gemma3DecoderLayer"] * 3
    with torch.no_grad():
        states = hidden_after_each(model, layers, IDS, torch.ones_like(IDS))
    assert [state.shape for state in states] == [(2, 12, 32)] * 3


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_the_layers_of_a_model_of_text_are_its_only_list_of_that_length(architecture):
    model = tiny.make_model(architecture)
    lists = [m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == 3]
    assert [list(each) for each in lists] == [decoder_layers(model)]


def test_a_model_without_such_a_list_is_refused():
    model = tiny.make_model()
    model.config.num_hidden_layers = 7
    with pytest.raises(InputError, match="layers of LlamaForCausalLM cannot be found"):
        decoder_layers(model)


def test_a_router_of_experts_is_no_projection():
    llama = transformers.Llama4TextConfig(hidden_size=8, num_local_experts=4)
    assert not is_projection(Llama4Router(llama))
    phi = transformers.PhimoeConfig(hidden_size=8, num_local_experts=4)
    assert not is_projection(PhimoeTopKRouter(phi))


def test_other_kinds_of_linear_modules_are_projections():
    for module in (torch.nn.Linear(2, 3), FalconLinear(2, 3), Conv1D(3, 2)):
        assert is_projection(module)
