"""Model folders that anybody may have written: no code of theirs runs, and none misleads."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.main import get_command

from tests import tiny
from tests.campaign.inputs import tiny_gguf
from tfrnet.cli.app import build_app
from tfrnet.core.errors import InputError
from tfrnet.data.sources import Source
from tfrnet.models.load import load_model
from tfrnet_bench.machine import Machine
from tfrnet_bench.run.context import RunContext
from tfrnet_bench.run.plan import BenchPlan

_CODE = """
from pathlib import Path
Path({witness!r}).write_text("ran")
from transformers import LlamaConfig, LlamaForCausalLM

class OwnConfig(LlamaConfig):
    model_type = "own"

class OwnModel(LlamaForCausalLM):
    config_class = OwnConfig
"""


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_folder, tmp_path / "model"))


def change_config(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.fixture
def with_code(folder: Path) -> Path:
    """A model folder that brings code, which leaves a witness when it runs."""
    (folder / "own.py").write_text(_CODE.format(witness=str(folder / "witness")))
    names = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    change_config(folder, model_type="own", architectures=["OwnModelForCausalLM"], auto_map=names)
    return folder


def refusal(name: Path, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        load_model(str(name), **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_code_in_a_model_folder_never_runs_even_if_standard_input_says_yes(
    with_code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 1000))
    assert "brings code of its own, which was not run" in refusal(with_code)
    assert not (with_code / "witness").exists()


def test_code_in_a_model_folder_runs_when_it_is_trusted(with_code: Path) -> None:
    model = load_model(str(with_code), trust_remote_code=True).model
    assert type(model).__name__ == "OwnModel"
    assert (with_code / "witness").read_text() == "ran"


def test_every_command_that_takes_a_model_takes_the_option() -> None:
    taken = {
        name: {option for each in command.params for option in each.opts}
        for name, command in get_command(build_app()).commands.items()
    }
    loading = {name for name, options in taken.items() if "--model" in options}
    assert {name for name in taken if "--trust-remote-code" in taken[name]} == loading
    assert {"run", "serve", "bench", "search", "prepare"} <= loading


def test_experiments_run_such_code_only_when_it_is_trusted(with_code: Path) -> None:
    plan = BenchPlan(experiments=("main",), model=str(with_code))
    careful, trusting = (Machine(Source("auto"), "cpu", trust_remote_code=t) for t in (False, True))
    with pytest.raises(InputError, match="brings code of its own, which was not run"):
        RunContext(plan, careful).model(plan.model)
    assert not (with_code / "witness").exists()
    assert type(RunContext(plan, trusting).model(plan.model).model).__name__ == "OwnModel"


def test_weights_of_more_layers_than_the_config_has_are_refused(folder: Path) -> None:
    change_config(folder, num_hidden_layers=2)
    assert "model.layers.2." in refusal(folder)


def test_a_weight_that_belongs_nowhere_is_refused(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file(
        weights | {"extra.weight": torch.ones(2)}, folder / "model.safetensors", {"format": "pt"}
    )
    assert "its weights hold extra.weight" in refusal(folder)


@pytest.mark.parametrize("packed", [{"quant_method": "unheard-of", "bits": 3}, {"bits": 3}])
def test_an_unknown_quantisation_is_refused(folder: Path, packed: dict) -> None:
    change_config(folder, quantization_config=packed)
    assert "unknown quantisation" in refusal(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_attention_heads": 0},
        {"num_hidden_layers": "three"},
        {"hidden_size": "32"},
        {"vocab_size": None},
        {"hidden_size": -1},
        {"rope_parameters": 7},
    ],
    ids=str,
)
def test_a_config_of_nonsense_is_one_line(folder: Path, changes: dict) -> None:
    change_config(folder, **changes)
    assert f"model {folder} cannot be loaded" in refusal(folder)


def test_a_config_that_is_nested_for_ever_is_one_line(folder: Path) -> None:
    (folder / "config.json").write_text('{"a":' * 100_000)
    assert f"model {folder} cannot be loaded" in refusal(folder)


def test_a_pickle_in_the_place_of_weights_is_one_line_and_does_not_run(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    witness = folder / "witness"
    pickled = f"cpathlib\nPath.touch\n(cpathlib\nPath\n(V{witness}\ntRtR.".encode()
    (folder / "pytorch_model.bin").write_bytes(pickled)
    assert f"model {folder} cannot be loaded" in refusal(folder)
    assert not witness.exists()


@pytest.mark.parametrize("layers", [13, 1 << 31])
def test_a_gguf_file_of_more_layers_than_tensors_is_one_line_at_once(
    tmp_path: Path, layers: int
) -> None:
    path = tiny_gguf(tmp_path / "tiny.gguf")
    name = b"llama.block_count" + (4).to_bytes(4, "little")  # an unsigned number of 32 bits
    one, many = (name + count.to_bytes(4, "little") for count in (1, layers))
    assert path.read_bytes().count(one) == 1
    path.write_bytes(path.read_bytes().replace(one, many))
    assert f"it claims {layers} layers and has 12 tensors" in refusal(path, device="cpu")


def test_a_gguf_file_that_lacks_weights_is_not_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFRNET_CACHE", str(tmp_path / "cache"))
    path = tiny_gguf(tmp_path / "tiny.gguf")
    # Under another name, a tensor is not the one that the model needs.
    content = path.read_bytes()
    assert content.count(b"blk.0.ffn_down.weight") == 1
    path.write_bytes(content.replace(b"blk.0.ffn_down.weight", b"blk.0.xxx_down.weight"))
    for _ in range(2):  # nor is anything left in the cache
        said = refusal(path, device="cpu")
        assert "cannot be converted: its weights lack model.layers.0.mlp.down_proj.weight" in said


def test_a_gguf_file_whose_words_would_be_read_as_letters_is_not_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFRNET_CACHE", str(tmp_path / "cache"))
    words = ["a", "aa", "aaaa"]
    without_merges = tiny_gguf(tmp_path / "letters.gguf", words)
    assert "would split words into letters" in refusal(without_merges, device="cpu")
    whole = load_model(str(tiny_gguf(tmp_path / "words.gguf", words, ["a a", "aa aa"])))
    assert whole.tokenizer.tokenize("aaaa") == ["aaaa"]


def test_an_adapter_of_itself_is_one_line(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, base in ((one, other), (other, one)):
        folder.mkdir()
        config = {"base_model_name_or_path": str(base)}
        (folder / "adapter_config.json").write_text(json.dumps(config))
        save_file({"w": torch.ones(1)}, folder / "adapter_model.safetensors")
    assert "names itself as its base model" in refusal(one)


def test_an_adapter_config_that_is_nested_for_ever_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("[" * 100_000)
    assert "adapter_config.json cannot be read" in refusal(tmp_path)


@pytest.mark.parametrize("architecture", sorted(tiny.ARCHITECTURES))
def test_what_transformers_saves_is_not_taken_for_unexpected(
    architecture: str, tmp_path: Path, tokenizer
) -> None:
    tiny.make_model(architecture).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    load_model(str(tmp_path))
