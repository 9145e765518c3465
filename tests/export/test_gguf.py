"""GGUF exports in llama.cpp: the text and the probabilities of the dense export."""

import math
import sys
from functools import partial
from resource import RLIMIT_FSIZE, setrlimit

import pytest
import torch
from transformers import AutoTokenizer

from tests import tiny
from tests.exports import closed_export, export_as, few_changed, masked
from tests.llamacpp import LlamaCpp, install_quantiser, small_llama
from tfrnet.core.errors import InputError
from tfrnet.export import FORMATS
from tfrnet.export.format import Options
from tfrnet.export.formats import gguf
from tfrnet.method import find_method
from tfrnet.models.load import model_folder

TEXT = "The capital of France is Paris, and the capital of Portugal is Lisbon."
PROMPT = "The capital of France is"
# A masked model may differ from transformers by this many times what llama.cpp's own arithmetic
# makes of the untouched model.
WORSE = 3.0
# And that must itself be small: nats for each token, root mean square. Above it, something other
# than rounding is wrong.
ROUNDING = {"F32": 0.01, "F16": 0.02, "BF16": 0.1, "Q8_0": 0.2, "Q4_K_M": 1.0}


@pytest.fixture(scope="module")
def known_tokenizer():
    """A tokenizer that llama.cpp knows."""
    return AutoTokenizer.from_pretrained(model_folder("smollm2-135m"))


@pytest.fixture(scope="module")
def small(known_tokenizer):
    model = small_llama(known_tokenizer, hidden_size=64, intermediate_size=96, num_hidden_layers=2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


@torch.no_grad()
def reference(model, tokenizer, tokens):
    """Return transformers' greedy continuation, and log probabilities of the text's tokens."""
    ids = tokenizer(TEXT, return_tensors="pt").input_ids
    logs = torch.log_softmax(model(ids).logits[0, :-1].double(), -1)
    chosen = logs.gather(-1, ids[0, 1:, None])[:, 0].tolist()
    prompt = tokenizer(PROMPT, return_tensors="pt").input_ids
    for _ in range(tokens):
        prompt = torch.cat([prompt, model(prompt).logits[:, -1:].argmax(-1)], 1)
    return prompt[0, -tokens:].tolist(), chosen


def difference(found, wanted):
    """Return the root mean square of what two lists of log probabilities differ by."""
    return math.dist(found, wanted) / math.sqrt(len(wanted))


def compare(model, tokenizer, folder, quant, tokens):
    """Export the untouched and the masked model, and compare each in llama.cpp with transformers.

    Returns what transformers and llama.cpp say before, and after.
    """
    ids = tokenizer(TEXT).input_ids
    said, wanted, found = [], [], []
    for name, values in (("before", few_changed(model, 0)), ("after", few_changed(model, 9))):
        with masked(model, values) as mask:
            export_as("gguf", mask, tokenizer, folder / name, quant=quant)
            text, logs = reference(model, tokenizer, tokens)
        (path,) = (folder / name).glob("*.gguf")
        assert path.name == f"model-{quant}.gguf"
        server = LlamaCpp(path)
        said.append((text, server.continued(PROMPT, tokens)))
        wanted.append(logs)
        found.append(server.log_probabilities(ids))
    own = difference(found[0], wanted[0])
    masked_too = difference(found[1], wanted[1])
    print(f"{quant}: {own:.2g} nats before, {masked_too:.2g} after")
    assert own < ROUNDING[quant]
    assert masked_too < WORSE * own
    # It is nearer to the masked model than to the untouched one.
    assert masked_too < difference(found[1], wanted[0])
    return said


@pytest.mark.slow
@pytest.mark.parametrize("quant", ["F32", "Q8_0"])
def test_a_file_says_in_llama_cpp_what_the_dense_export_says(
    small, known_tokenizer, tmp_path, quant
):
    before, after = compare(small, known_tokenizer, tmp_path, quant, 4)
    assert before[0] != after[0]
    if quant == "F32":
        assert before[0] == before[1] and after[0] == after[1]


@pytest.mark.slow
def test_others_can_read_it(small, known_tokenizer, tmp_path):
    with masked(small, few_changed(small)) as mask:
        modes = closed_export("gguf", mask, known_tokenizer, tmp_path / "out", quant="F32")
    assert modes == {0o644}
    card = (tmp_path / "out" / "README.md").read_text()
    for words in (
        "library_name: gguf",
        "llama-cli -m out/model-F32.gguf",
        "## Limits",
        "| guard |",
    ):
        assert words in card, words
    assert "before the conversion to GGUF" in card
    assert "can be taken off" not in card


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("quant", ["F32", "F16", "BF16", "Q8_0"])
def test_the_real_model_in_llama_cpp(real, tmp_path, quant):
    before, after = compare(real.model, real.tokenizer, tmp_path, quant, 12)
    assert before[0] != after[0]
    for wanted, found in (before, after):
        assert wanted[:4] == found[:4]
        assert quant != "F32" or wanted == found


@pytest.mark.real
@pytest.mark.slow
def test_the_real_model_in_four_bits(real, tmp_path, monkeypatch):
    """By llama.cpp's own quantiser."""
    install_quantiser(tmp_path, monkeypatch)
    before, _ = compare(real.model, real.tokenizer, tmp_path, "Q4_K_M", 4)
    assert before[1][0] == before[0][0]


@pytest.mark.slow
def test_four_bits_are_made_by_llama_quantize(small, known_tokenizer, tmp_path, monkeypatch):
    """A stand-in for the program: it gets the file in float32, and what it writes is exported."""
    program = tmp_path / "bin" / "llama-quantize"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport sys, shutil\nshutil.copy(*sys.argv[1:3])\n"
        'assert sys.argv[3] == "Q4_K_M"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    FORMATS.find("gguf").refuse(find_method("tfr"), Options(quant="Q4_K_M"))
    with masked(small, few_changed(small)) as mask:
        export_as("gguf", mask, known_tokenizer, tmp_path / "out", quant="Q4_K_M")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "README.md",
        "tfrnet.json",
        "model-Q4_K_M.gguf",
    }
    program.write_text("#!/bin/sh\necho no room >&2\nexit 3\n")
    with (
        masked(small, few_changed(small)) as mask,
        pytest.raises(InputError, match="llama-quantize failed: no room; nothing was exported"),
    ):
        export_as("gguf", mask, known_tokenizer, tmp_path / "more", quant="Q4_K_M")
    assert not (tmp_path / "more").exists()


@pytest.mark.slow
def test_a_model_that_the_converter_does_not_know_is_refused(tokenizer, tmp_path):
    model = tiny.make_model("llama")
    with (
        masked(model) as mask,
        pytest.raises(InputError, match=r"converter does not support this model: .*pre-tokenizer"),
    ):
        export_as("gguf", mask, tokenizer, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_disk_that_fills_while_it_converts_is_said(small, known_tokenizer, tmp_path, monkeypatch):
    """The converter's files may grow to 1 MB, as on a disk with that much room."""
    run, limit = gguf.subprocess.run, (1 << 20, 1 << 20)
    limited = partial(run, preexec_fn=lambda: setrlimit(RLIMIT_FSIZE, limit))
    monkeypatch.setattr(gguf.subprocess, "run", limited)
    with (
        masked(small, few_changed(small)) as mask,
        pytest.raises(InputError, match="out cannot be written: File too large; nothing was"),
    ):
        export_as("gguf", mask, known_tokenizer, tmp_path / "out", quant="F32")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_architecture_that_the_converter_does_not_know_is_refused(tmp_path):
    dense = tmp_path / "dense"
    dense.mkdir()
    (dense / "config.json").write_text('{"architectures": ["NobodyForCausalLM"]}')
    with pytest.raises(InputError, match="NobodyForCausalLM is not supported; nothing was"):
        gguf._convert(dense, tmp_path / "out.gguf", "f32")


@pytest.mark.slow
def test_a_file_of_the_converters_name_in_the_current_folder_is_not_run(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text('{"architectures": ["NobodyForCausalLM"]}')
    (tmp_path / "convert_hf_to_gguf.py").write_text("raise SystemExit('the wrong file was run')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="NobodyForCausalLM is not supported"):
        gguf._convert(tmp_path, tmp_path / "out.gguf", "f32")


@pytest.mark.parametrize(
    ("said", "error", "problem"),
    [
        ("OSError: 940032 requested and 374944 written", OSError, "No space left on device"),
        ("OSError: [Errno 28] No space left on device", OSError, "No space left on device"),
        ("OSError: [Errno 2] No such file", InputError, r"unsupported: OSError: \[Errno 2\]"),
        ("", InputError, "unsupported: exit code 1; nothing was exported"),
    ],
)
def test_the_last_word_is_told_not_the_progress(tmp_path, said, error, problem):
    program = f"import sys; sys.exit({said!r} + '\\nWriting:  74%|████  | 1/2')"
    with pytest.raises(error, match=problem):
        gguf._run([sys.executable, "-c", program], tmp_path / "none.gguf", "unsupported")


def test_what_is_missing_or_unknown_is_said_before_a_model_is_loaded(monkeypatch):
    form, tfr = FORMATS.find("gguf"), find_method("tfr")
    with pytest.raises(InputError, match="unknown --quant 'Q3'; choose from F32, F16"):
        form.refuse(tfr, Options(quant="Q3"))
    monkeypatch.setattr(gguf.shutil, "which", lambda name: None)
    with pytest.raises(InputError, match="Q4_K_M needs llama-quantize on the PATH"):
        form.refuse(tfr, Options(quant="Q4_K_M"))
    monkeypatch.setattr(gguf, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'tfrnet\[llamacpp\]'"):
        form.refuse(tfr, Options())
