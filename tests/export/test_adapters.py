"""(IA)3 and LoRA adapters: the same logits as the mask, and as the dense export."""

import json
import warnings

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from tests import tiny
from tests.exports import closed_export, export_as, few_changed, masked
from tfrnet.core.errors import InputError, TfrnetWarning
from tfrnet.masking.fold import folded_tensors
from tfrnet.masking.mask import ChannelMask
from tfrnet.methods.npo.method import METHOD as NPO
from tfrnet.models.load import load_model

pytestmark = pytest.mark.filterwarnings("ignore::tfrnet.core.errors.TfrnetWarning")
IDS = torch.arange(1, 25).reshape(2, 12)


@torch.no_grad()
def logits(model):
    return model(IDS).logits


@pytest.fixture
def base(request, tmp_path, tokenizer):
    """A small model in float64, saved and loaded as a user would."""
    architecture = getattr(request, "param", "llama")
    folder = tmp_path / "base"
    tiny.make_model(architecture, torch.float64).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return loaded(folder)


def loaded(folder):
    # Experts one by one: together torch multiplies them in narrower numbers only.
    options = {"dtype": torch.float64, "experts_implementation": "eager"}
    return AutoModelForCausalLM.from_pretrained(folder, **options).eval()


def with_folded(model, mask: ChannelMask):
    """Return the logits of the dense export's weights."""
    folded = folded_tensors(model, mask.index, mask.values)
    mask.detach()
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(folded, strict=False)
    found = logits(model)
    model.load_state_dict(kept)
    return found


@pytest.mark.parametrize("base", tiny.ARCHITECTURES, indirect=True)
@pytest.mark.parametrize("form", ["ia3", "lora"])
def test_an_adapter_gives_the_dense_exports_logits(base, form, tokenizer, tmp_path):
    mask = masked(base, few_changed(base) if form == "lora" else None)
    out = tmp_path / "adapter"
    export_as(form, mask, tokenizer, out)
    dense = with_folded(base, mask)
    untouched = logits(base)
    by_name = loaded(out)
    by_peft = PeftModel.from_pretrained(base, out).eval()
    for found in (logits(by_name), logits(by_peft)):
        assert found.dtype == torch.float64
        torch.testing.assert_close(found, dense, rtol=0, atol=1e-6)
    assert (dense - untouched).abs().max() > 0.01


@pytest.mark.parametrize("form", ["ia3", "lora"])
@pytest.mark.parametrize("base", ["qwen2", "gpt2"], indirect=True)
def test_biases_are_scaled_too(base, form, tokenizer, tmp_path):
    name = "q_proj" if "Qwen2" in type(base).__name__ else "c_attn"
    module = next(m for n, m in base.named_modules() if n.endswith(name))
    with torch.no_grad():
        module.bias.fill_(3)
    mask = masked(base, few_changed(base))
    out = tmp_path / "adapter"
    export_as(form, mask, tokenizer, out)
    with torch.no_grad():
        wanted = module(torch.zeros(1, base.config.hidden_size, dtype=torch.float64))
    mask.detach()
    assert wanted[0, 0] == 0 and wanted[0, 2] == 3
    adapted = PeftModel.from_pretrained(base, out)
    layer = next(m for n, m in adapted.named_modules() if n.endswith(name))
    with torch.no_grad():
        found = layer(torch.zeros(1, base.config.hidden_size, dtype=torch.float64))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("base", ["llama", "gpt2"], indirect=True)
def test_a_lora_of_projections_that_are_alike_can_be_merged(base, tokenizer, tmp_path):
    mask = masked(base, few_changed(base))
    with warnings.catch_warnings():
        warnings.simplefilter("error", TfrnetWarning)
        export_as("lora", mask, tokenizer, tmp_path / "out")
    wanted = logits(base)
    mask.detach()
    merged = PeftModel.from_pretrained(base, tmp_path / "out").merge_and_unload()
    torch.testing.assert_close(logits(merged), wanted, rtol=0, atol=1e-6)
    assert "cannot merge" not in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize("base", ["qwen2"], indirect=True)
def test_it_is_said_that_a_lora_with_some_biases_cannot_be_merged(
    base, tokenizer, tmp_path, monkeypatch
):
    monkeypatch.setenv("TFRNET_CACHE", str(tmp_path / "cache"))
    mask = masked(base, few_changed(base))
    with pytest.warns(TfrnetWarning, match="cannot merge it.*formats ia3 and dense"):
        export_as("lora", mask, tokenizer, tmp_path / "out")
    mask.detach()
    assert "cannot merge it" in (tmp_path / "out" / "README.md").read_text()
    with pytest.raises(InputError, match="cannot be merged"):
        load_model(str(tmp_path / "out"))


def test_an_ia3_adapter_is_peft_s_own_kind_and_small(base, tokenizer, tmp_path):
    with masked(base) as mask:
        export_as("ia3", mask, tokenizer, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert (config["peft_type"], config["feedforward_modules"]) == ("IA3", [])
    assert config["base_model_name_or_path"] == str(tmp_path / "base")
    tensors = load_file(tmp_path / "out" / "adapter_model.safetensors")
    assert sum(tensor.numel() for tensor in tensors.values()) == mask.index.total
    assert {name.rsplit(".", 1)[-1] for name in tensors} == {"ia3_l"}


@pytest.mark.parametrize("form", ["ia3", "lora"])
def test_the_live_model_is_as_before(base, form, tokenizer, tmp_path):
    with masked(base, few_changed(base)) as mask:
        before, modules = logits(base), [type(module) for module in base.modules()]
        export_as(form, mask, tokenizer, tmp_path / "out")
        assert torch.equal(logits(base), before)
        assert [type(module) for module in base.modules()] == modules


def condition(model):
    """Return everything about a model that PEFT could leave changed."""
    return {
        "modules": dict(model.named_modules()),
        "forward": [name for name, m in model.named_modules() if "forward" in vars(m)],
        "training": {name: m.training for name, m in model.named_modules()},
        "trained": {name: p.requires_grad for name, p in model.named_parameters()},
        "facts": set(vars(model)),
    }


@pytest.mark.parametrize("broken", ["loading", "comparing"])
@pytest.mark.parametrize("form", ["ia3", "lora"])
def test_the_live_model_is_as_before_if_the_export_fails(
    base, form, broken, tokenizer, tmp_path, monkeypatch
):
    base.model.layers[0].requires_grad_(False)
    base.model.layers[1].train()

    def fail(*args, **kwargs):
        raise InputError("it broke")

    if broken == "loading":
        # Called by PEFT when all adapters are on the model and their weights are read.
        monkeypatch.setattr("peft.peft_model.load_peft_weights", fail)
    else:
        monkeypatch.setattr("peft.PeftModel.forward", fail)
        monkeypatch.setattr("peft.PeftModelForCausalLM.forward", fail)
    with masked(base, few_changed(base)) as mask:
        before, state = logits(base), condition(base)
        with pytest.raises(InputError, match="it broke"):
            export_as(form, mask, tokenizer, tmp_path / "out")
        assert condition(base) == state
        assert torch.equal(logits(base), before)


@pytest.mark.parametrize("form", ["ia3", "lora"])
def test_others_can_read_it(base, form, tokenizer, tmp_path):
    with masked(base, few_changed(base)) as mask:
        assert closed_export(form, mask, tokenizer, tmp_path / "out") == {0o644}


def test_too_many_changed_channels_for_a_lora_are_counted(base, tokenizer, tmp_path):
    values = few_changed(base, count=5)
    values[8:10] = 0.5  # of the first projection, so seven there
    with (
        masked(base, values) as mask,
        pytest.raises(
            InputError,
            match=r"21 of 21 .* more than 4 changed channels \(most: 7, in .*q_proj\).*--rank 7",
        ),
    ):
        export_as("lora", mask, tokenizer, tmp_path / "out", rank=4)
    assert not (tmp_path / "out").exists()


def test_a_mask_of_ones_is_no_lora(base, tokenizer, tmp_path):
    with (
        masked(base, few_changed(base, count=0)) as mask,
        pytest.raises(InputError, match="changes no channel"),
    ):
        export_as("lora", mask, tokenizer, tmp_path / "out")


def test_of_a_quantised_model_there_is_an_ia3_adapter_only(tiny_folder, tokenizer, tmp_path):
    packed = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype="float32")
    model = AutoModelForCausalLM.from_pretrained(tiny_folder, quantization_config=packed).eval()
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            # Such processors multiply in bfloat16, and only blocks of 64 weights.
            module.support_avx512bf16_for_cpu = False
    with masked(model, few_changed(model)) as mask:
        before, state = logits(model), condition(model)
        export_as("ia3", mask, tokenizer, tmp_path / "ia3")
        for form, problem in (("dense", "that are quantised; use --format ia3"), ("lora", "ia3")):
            with pytest.raises(InputError, match=problem):
                export_as(form, mask, tokenizer, tmp_path / form)
        assert condition(model) == state
        assert torch.equal(logits(model), before)
    adapted = PeftModel.from_pretrained(model, tmp_path / "ia3").eval()
    torch.testing.assert_close(logits(adapted), before, rtol=0, atol=1e-5)


@pytest.mark.parametrize("trained", ["lora", "full"])
def test_a_trained_adapter_is_exported_as_it_is(trained, tiny_folder, tokenizer, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(tiny_folder).eval()
    config = NPO.config_class(trained=trained, steps=2, learning_rate=0.01)
    net = NPO(model, tokenizer, tiny.examples(8), config)
    net.forget(tiny.requests(1)[0])
    wanted = logits(model)
    if trained == "full":
        with pytest.raises(InputError, match="holds trained weights"):
            export_as("lora", net.effect, tokenizer, tmp_path / "out")
        return
    export_as("lora", net.effect, tokenizer, tmp_path / "out")
    net.detach()
    assert (logits(model) - wanted).abs().max() > 1e-3
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    torch.testing.assert_close(logits(found), wanted, rtol=0, atol=1e-5)


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("changed", ["few", "all"])
def test_on_the_real_model_adapters_and_dense_agree(real, tmp_path, changed):
    """With a few channels changed in each projection, and with all of them, as a state has it."""
    model = real.model
    ids = real.tokenizer("The capital of France is Paris, and that of", return_tensors="pt")
    values = few_changed(model, count=3)
    adapters = ("ia3", "lora")
    if changed == "all":
        values = 1 - 0.2 * torch.rand(len(values), generator=torch.Generator().manual_seed(0))
        adapters = ("ia3",)
    with masked(model, values) as mask, torch.no_grad():
        for form in ("dense", *adapters):
            assert export_as(form, mask, real.tokenizer, tmp_path / form) < 1e-4
        live = model(**ids).logits
    with torch.no_grad():
        dense = AutoModelForCausalLM.from_pretrained(tmp_path / "dense").eval()(**ids).logits
        assert (dense - live).abs().max() < 1e-3
        assert (dense - model(**ids).logits).abs().max() > 0.1
        for form in adapters:
            by_name = AutoModelForCausalLM.from_pretrained(tmp_path / form).eval()
            assert (by_name(**ids).logits - dense).abs().max() < 1e-3
            by_peft = PeftModel.from_pretrained(model, tmp_path / form).eval()
            assert (by_peft(**ids).logits - dense).abs().max() < 1e-3
            by_peft.unload()
    size = (tmp_path / "ia3" / "adapter_model.safetensors").stat().st_size
    assert size < 1 << 20
