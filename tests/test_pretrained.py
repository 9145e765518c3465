"""The public class: loading a state onto a model, using it, forgetting more, and saving."""

from __future__ import annotations

import inspect
import json
import shutil
import textwrap
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests import tiny
from tests.datasets import write_lines
from tfrnet import InputError, Session, StateError, TFRNet, apply_state, load_model
from tfrnet.models.passes import DEFAULT_BATCH, Passes
from tfrnet.state.store import StateStore

RETAIN = tiny.examples(20)
SMALL = tiny.deep(guard_examples=4, retain_examples=6, steps=1)
FIRST, SECOND = tiny.requests(2)
IDS = torch.arange(1, 31).view(2, 15)


@pytest.fixture(scope="module")
def made(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state with one request."""
    folder = tmp_path_factory.mktemp("made") / "state"
    loaded = load_model(str(tiny_folder))
    name = str(tiny_folder)
    with Session(*loaded, folder, RETAIN, config=SMALL, model_name=name) as session:
        assert session.forget(FIRST).accepted
    return folder


@pytest.fixture
def state(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "state"))


@torch.no_grad()
def logits(model) -> torch.Tensor:
    return model(IDS).logits


def test_a_state_acts_on_the_model_and_generates(tiny_folder: Path, state: Path) -> None:
    net = TFRNet.from_pretrained(tiny_folder, state)
    base = load_model(str(tiny_folder)).model
    assert not torch.equal(logits(net.model), logits(base))
    with apply_state(base, state):
        assert torch.equal(logits(net.model), logits(base))
        expected = base.generate(IDS, max_new_tokens=4, do_sample=False)
    assert torch.equal(net.generate(IDS, max_new_tokens=4, do_sample=False), expected)
    net.detach()
    assert torch.equal(logits(net.model), logits(base))


@pytest.mark.parametrize("at_once", [True, False])
def test_it_goes_on_in_memory_as_a_session_would_on_disk(
    tiny_folder: Path, state: Path, at_once: bool
) -> None:
    retain = {"retain": RETAIN}
    net = TFRNet.from_pretrained(None, state, **(retain if at_once else {}))
    outcome = net.forget(SECOND, **({} if at_once else retain))
    with Session(*load_model(str(tiny_folder)), state, RETAIN) as session:
        assert session.unlearner.guard == net.guard
        on_disk = session.forget(SECOND)
        assert net.state.digest() == session.unlearner.state.digest()
    assert outcome.guard_loss_after == on_disk.guard_loss_after


def test_only_forgetting_needs_retain_data_and_then_the_guards(state: Path) -> None:
    net = TFRNet.from_pretrained(None, state)
    before = net.state
    with pytest.raises(InputError, match="retain data is needed"):
        net.forget(SECOND)
    with pytest.raises(InputError, match="guard examples of state"):
        net.forget(SECOND, retain=tiny.examples(5, offset=500))
    assert (net.state, net.retain, net.guard) == (before, [], [])
    assert net.forget(SECOND, retain=RETAIN).accepted
    with pytest.raises(InputError, match="guard examples of state"):
        TFRNet.from_pretrained(None, state, retain=tiny.examples(5, offset=500))


def test_what_is_saved_is_an_ordinary_model(state: Path, tmp_path: Path) -> None:
    net = TFRNet.from_pretrained(None, state)
    net.save_pretrained(tmp_path / "saved")
    model, tokenizer = load_model(str(tmp_path / "saved"))
    torch.testing.assert_close(logits(model), logits(net.model), rtol=1e-4, atol=1e-4)
    assert tokenizer("Item 3")["input_ids"] == net.tokenizer("Item 3")["input_ids"]
    facts = json.loads((tmp_path / "saved" / "tfrnet.json").read_text())
    store = StateStore.open(state)
    assert facts["base_fingerprint"] == store.manifest.fingerprint
    assert facts["state_digest"] == store.history.digests[store.generation]
    with pytest.raises(InputError, match="not empty"):
        net.save_pretrained(tmp_path / "saved")


def test_an_earlier_generation_can_be_had(tiny_folder: Path, state: Path) -> None:
    net = TFRNet.from_pretrained(None, state, generation=0)
    assert torch.equal(logits(net.model), logits(load_model(str(tiny_folder)).model))
    with pytest.raises(StateError, match="never existed"):
        TFRNet.from_pretrained(None, state, generation=9)


def test_another_model_or_method_is_refused(state: Path, tokenizer, tmp_path: Path) -> None:
    other = tiny.make_model(seed=1)
    with pytest.raises(StateError, match="another base model"):
        TFRNet.from_pretrained(other, state, tokenizer)
    with pytest.raises(InputError, match="needs its tokenizer"):
        TFRNet.from_pretrained(other, state)
    with pytest.raises(StateError, match="holds no state"):
        TFRNet.from_pretrained(other, tmp_path, tokenizer)
    model = tiny.make_model()
    Session(model, tokenizer, tmp_path / "ga", RETAIN, method="ga").close()
    with pytest.raises(StateError, match="method ga"):
        TFRNet.from_pretrained(model, tmp_path / "ga", tokenizer)


def test_the_example_in_the_docstring_runs(
    tiny_folder: Path, state: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    write_lines(tmp_path / "more.jsonl", [SECOND.to_dict()])
    write_lines(tmp_path / "retain.jsonl", [example.to_dict() for example in RETAIN])
    state.rename(tmp_path / "tfrnet-state")
    monkeypatch.chdir(tmp_path)
    text = inspect.getdoc(TFRNet) or ""
    code = [line for line in text.splitlines() if line.startswith("    ")]
    program = textwrap.dedent("\n".join(code)).replace("smollm2-135m", str(tiny_folder))
    names: dict = {}
    exec(program, names)
    assert names["outcome"].outcome in capsys.readouterr().out
    assert isinstance(names["model"], type(AutoModelForCausalLM.from_pretrained(tiny_folder)))
    torch.testing.assert_close(
        logits(names["model"].eval()), logits(names["net"].model), rtol=1e-4, atol=1e-4
    )


def test_passes_are_fitted_to_the_first_retain_data(
    tiny_folder: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TFRNet, "_automatic_passes", lambda self, *asked: Passes(3))
    net = TFRNet.from_pretrained(tiny_folder, state)
    assert net.batch_size == DEFAULT_BATCH
    net.forget(SECOND, retain=RETAIN)
    assert net.batch_size == net._options.batch_size == 3
    chosen = TFRNet.from_pretrained(tiny_folder, state, batch_size=5)
    chosen.forget(SECOND, retain=RETAIN)
    assert chosen.batch_size == 5
