"""Which modules of each architecture are channels, compared with PEFT where PEFT has a say."""

import warnings

import peft
import pytest
import torch
import transformers
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn

from tests import tiny
from tfrnet.core.errors import InputError, TfrnetWarning
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask

ATTENTION = {"q_proj": 32, "k_proj": 16, "v_proj": 16, "o_proj": 32}
LLAMA_LIKE = {f"self_attn.{name}": width for name, width in ATTENTION.items()} | {
    "mlp.gate_proj": 48,
    "mlp.up_proj": 48,
    "mlp.down_proj": 32,
}
# Name and width of every projection of one layer, by hand from the sizes in tests/tiny.py.
LAYER = {
    "llama": ("model.layers", LLAMA_LIKE),
    "mistral": ("model.layers", LLAMA_LIKE),
    "qwen2": ("model.layers", LLAMA_LIKE),
    "qwen3": ("model.layers", LLAMA_LIKE),
    "gemma3": ("model.layers", LLAMA_LIKE),
    "gpt2": (
        "transformer.h",
        {"attn.c_attn": 96, "attn.c_proj": 32, "mlp.c_fc": 128, "mlp.c_proj": 32},
    ),
    "gpt_neox": (
        "gpt_neox.layers",
        {
            "attention.query_key_value": 96,
            "attention.dense": 32,
            "mlp.dense_h_to_4h": 48,
            "mlp.dense_4h_to_h": 32,
        },
    ),
    "phi3": (
        "model.layers",
        {
            "self_attn.o_proj": 32,
            "self_attn.qkv_proj": 64,
            "mlp.gate_up_proj": 96,
            "mlp.down_proj": 32,
        },
    ),
    "mixtral": ("model.layers", {f"self_attn.{n}": width for n, width in ATTENTION.items()}),
    "qwen2_moe": (
        "model.layers",
        {f"self_attn.{name}": width for name, width in ATTENTION.items()}
        | {
            "mlp.shared_expert.gate_proj": 24,
            "mlp.shared_expert.up_proj": 24,
            "mlp.shared_expert.down_proj": 32,
            "mlp.shared_expert_gate": 1,
        },
    ),
}
MIXTURES = ("mixtral", "qwen2_moe")


def select(model, target_modules="all-linear", **changes):
    return find_channels(model, target_modules=target_modules, **changes)


def names(index):
    return [projection.name for projection in index]


@pytest.mark.filterwarnings("ignore::tfrnet.core.errors.TfrnetWarning")
@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_all_linear_selects_every_projection_but_the_head(architecture):
    model = tiny.make_model(architecture)
    prefix, layer = LAYER[architecture]
    index = select(model)
    assert {p.name: p.width for p in index} == {
        f"{prefix}.{number}.{name}": width for number in range(3) for name, width in layer.items()
    }
    assert isinstance(model.get_submodule("lm_head"), nn.Linear)


@pytest.mark.filterwarnings("ignore::tfrnet.core.errors.TfrnetWarning")
@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_channels_are_numbered_without_gaps_in_the_order_of_named_modules(architecture):
    model = tiny.make_model(architecture)
    index = select(model)
    order = [name for name, _ in model.named_modules()]
    assert names(index) == sorted(names(index), key=order.index)
    numbers = [number for p in index for number in range(p.start, p.start + p.width)]
    assert numbers == list(range(index.total))


def chosen_by_peft(architecture, target_modules, **options):
    config = peft.LoraConfig(target_modules=target_modules, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = peft.get_peft_model(tiny.make_model(architecture), config).base_model.model
    return [name for name, module in model.named_modules() if isinstance(module, BaseTunerLayer)]


@pytest.mark.filterwarnings("ignore::tfrnet.core.errors.TfrnetWarning")
@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_all_linear_is_what_peft_selects(architecture):
    expected = chosen_by_peft(architecture, "all-linear")
    if architecture == "mixtral":
        # PEFT rewrites this selection for Mixtral alone, to reach into the experts' tensors.
        expected = [name for name in expected if "mlp.experts" not in name and "gate" not in name]
    assert names(select(tiny.make_model(architecture))) == expected


@pytest.mark.parametrize(
    ("architecture", "target"),
    [
        ("llama", ["q_proj", "up_proj"]),
        ("llama", ["mlp.down_proj", "model.layers.1.self_attn.k_proj"]),
        ("llama", r".*\.(q|k)_proj"),
        ("llama", r"model\.layers\.[02]\.mlp\..*_proj"),
        ("qwen2", ["v_proj"]),
        ("gemma3", r".*self_attn\.[qkvo]_proj"),
        ("gpt2", ["c_proj"]),
        ("gpt2", ["mlp.c_proj", "c_attn"]),
        ("gpt2", r"transformer\.h\.\d\.mlp\.c_.*"),
        ("gpt_neox", ["query_key_value"]),
        ("gpt_neox", r".*dense.*"),
        ("phi3", ["qkv_proj", "gate_up_proj"]),
        ("phi3", r".*(qkv|gate_up)_proj"),
        ("qwen2_moe", ["shared_expert.up_proj", "q_proj"]),
        ("qwen2_moe", r".*shared_expert_gate"),
    ],
)
def test_lists_and_regular_expressions_select_what_they_select_in_peft(architecture, target):
    ours = names(select(tiny.make_model(architecture), target))
    assert ours == chosen_by_peft(architecture, target)


def test_layers_select_as_in_peft():
    chosen = names(select(tiny.make_model("llama"), ["q_proj", "up_proj"], layers=[0, 2]))
    assert chosen == chosen_by_peft("llama", ["q_proj", "up_proj"], layers_to_transform=[0, 2])
    assert chosen == [
        "model.layers.0.self_attn.q_proj",
        "model.layers.0.mlp.up_proj",
        "model.layers.2.self_attn.q_proj",
        "model.layers.2.mlp.up_proj",
    ]


def test_a_listed_name_matches_whole_parts_of_a_module_name():
    model = tiny.make_model("llama")
    model.model.layers[0].self_attn.my_q_proj = nn.Linear(32, 8)
    assert names(select(model, ["q_proj"])) == [
        f"model.layers.{number}.self_attn.q_proj" for number in range(3)
    ]


def test_a_regular_expression_must_match_the_whole_name():
    with pytest.raises(InputError, match="no module"):
        select(tiny.make_model("llama"), "q_proj")


@pytest.mark.filterwarnings("ignore::tfrnet.core.errors.TfrnetWarning")
def test_a_regular_expression_for_everything_leaves_the_head_out():
    model = tiny.make_model("llama")
    assert names(select(model, ".*")) == names(select(model))


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gemma3"])
def test_naming_the_head_is_refused(architecture):
    model = tiny.make_model(architecture)
    for target in (["lm_head"], "lm_head", ["lm_head", next(iter(LAYER[architecture][1]))]):
        with pytest.raises(InputError, match="LM head"):
            select(model, target)


@pytest.mark.parametrize(
    ("target", "wrong"),
    [
        (["embed_tokens"], "embed_tokens"),
        (["q_proj", "embed_tokens"], "embed_tokens"),
        (r".*embed_.*", "embed_tokens"),
        (["q_proj", "no_such"], "no_such"),
        (["no_such"], "no_such"),
        (["proj"], "proj"),
        (["input_layernorm"], "input_layernorm"),
        (["self_attn"], "self_attn"),
        (r".*no_such.*", "no_such"),
        (r".*_layernorm", "_layernorm"),
    ],
)
def test_what_is_not_a_projection_is_refused_by_name(target, wrong):
    with pytest.raises(InputError, match=wrong):
        select(tiny.make_model("llama"), target)


def test_the_error_names_the_projections_there_are():
    with pytest.raises(InputError) as caught:
        select(tiny.make_model("phi3"), ["q_proj"])
    for name in ("qkv_proj", "gate_up_proj", "o_proj", "down_proj"):
        assert name in str(caught.value)
    assert "lm_head" not in str(caught.value)


@pytest.mark.parametrize("layers", [[3], [0, 7]])
def test_a_layer_that_is_not_there_is_refused(layers):
    with pytest.raises(InputError, match=str(layers[-1])):
        select(tiny.make_model("llama"), layers=layers)


@pytest.mark.parametrize("architecture", MIXTURES)
@pytest.mark.parametrize("target", ["all-linear", r".*(q_proj|experts)"])
def test_experts_that_cannot_be_masked_are_named_in_a_warning(architecture, target):
    model = tiny.make_model(architecture)
    with pytest.warns(TfrnetWarning, match="3 x (Mixtral|Qwen2Moe)Experts"):
        select(model, target)


def with_routers(kind):
    """Return a small mixture of experts whose routers are linear modules."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0}
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    config = kind(vocab_size=tiny.VOCABULARY, **sizes, **heads, **experts)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (transformers.Llama4TextConfig, "Llama4Router"),
        (transformers.PhimoeConfig, "PhimoeTopKRouter"),
    ],
)
def test_routers_are_not_masked_and_named_in_a_warning(kind, name):
    model = with_routers(kind)
    with pytest.warns(TfrnetWarning, match=f"2 x {name}"):
        index = select(model)
    assert index and not any("router" in part for part in names(index))
    with ChannelMask(model, index) as mask, torch.no_grad():
        mask.set(torch.full((index.total,), 0.5))
        assert model(torch.arange(1, 9).reshape(1, 8)).logits.isfinite().all()


@pytest.mark.parametrize("architecture", MIXTURES)
def test_naming_experts_alone_is_refused(architecture):
    with pytest.raises(InputError, match="experts"):
        select(tiny.make_model(architecture), ["experts"])


@pytest.mark.parametrize("architecture", sorted(set(tiny.ARCHITECTURES) - set(MIXTURES)))
def test_a_dense_model_is_masked_without_a_warning(architecture):
    with warnings.catch_warnings():
        warnings.simplefilter("error", TfrnetWarning)
        select(tiny.make_model(architecture))


def test_tensor_parallelism_is_refused():
    model = tiny.make_model()
    model._tp_size = 2
    with pytest.raises(InputError, match="split among 2 processes"):
        find_channels(model)
