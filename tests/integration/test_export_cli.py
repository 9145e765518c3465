"""`tfrnet export` and `tfrnet import` at the command line: formats, cards, bad input."""

from __future__ import annotations

import json
import re
import shutil
from importlib import import_module
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from tests import tiny
from tests.integration.commands import Files, Tfrnet
from tests.state.made_up import contents, generation_file
from tests.state.test_salvage import change_line
from tfrnet.core.errors import InputError, StateError
from tfrnet.core.signing import read_key
from tfrnet.export import FORMATS
from tfrnet.method_state import mask_of, verify_state
from tfrnet.state.new_state import NewState
from tfrnet.state.store import StateStore

IDS = torch.arange(1, 20)[None]


@pytest.fixture
def adapter(tfrnet: Tfrnet, files: Files, tmp_path: Path) -> Path:
    out = tmp_path / "adapter"
    result = tfrnet("export", "--format", "ia3", "--out", out, "--state", files.state)
    assert result.code == 0, result.err
    return out


def test_ia3_is_the_dense_export_and_says_that_it_can_be_taken_off(
    tfrnet: Tfrnet, files: Files, tmp_path: Path
) -> None:
    for form in ("ia3", "dense"):
        result = tfrnet(
            "export", "--format", form, "--out", tmp_path / form, "--state", files.state
        )
        assert result.code == 0
        assert ("can be taken off" in result.err) == (form == "ia3")
    with torch.no_grad():
        ia3, dense = (
            AutoModelForCausalLM.from_pretrained(tmp_path / form)(IDS).logits
            for form in ("ia3", "dense")
        )
    torch.testing.assert_close(ia3, dense, rtol=0, atol=1e-4)


@pytest.mark.parametrize("form", ["dense", "ia3", pytest.param("lora", marks=pytest.mark.slow)])
def test_the_card_tells_what_it_is(tfrnet: Tfrnet, files: Files, tmp_path: Path, form: str) -> None:
    where = ["--out", tmp_path / "out", "--state", files.state]
    rank = ["--rank", 1000] if form == "lora" else []
    assert tfrnet("export", "--format", form, *rank, *where).code == 0
    card = (tmp_path / "out" / "README.md").read_text()
    store = StateStore.open(files.state)
    assert card.startswith("---\nlibrary_name: ")
    for words in (
        f"`{files.model.name}`",
        store.manifest.fingerprint,
        "2 applied, 0 rejected",
        "method | `tfr`",
        "at most 5 %",
        store.history.digests[2],
        store.entries[-1]["hash"],
        "What was measured",
        "Less likely is not unknown",
    ):
        assert words in card, words
    assert str(files.model.parent) not in card
    assert ("can be taken off" in card) == (form in ("ia3", "lora"))
    # Neither words nor ids of a request leave the state.
    assert not any(word in card for word in ("request-0", "request-1", "Item 1000", "old box"))
    first = store.entries[1]
    measured = json.loads((tmp_path / "out" / "tfrnet.json").read_text())["requests"]
    assert measured[0]["forget_loss_before"] == first["forget_loss_before"]
    assert len(measured) == 2


def test_an_older_generation_tells_of_its_own_requests(
    tfrnet: Tfrnet, files: Files, tmp_path: Path
) -> None:
    tfrnet("export", "--out", tmp_path / "out", "--state", files.state, "--generation", 1)
    assert "1 applied, 0 rejected" in (tmp_path / "out" / "README.md").read_text()


def test_what_is_undone_is_not_counted(tfrnet: Tfrnet, files: Files, tmp_path: Path) -> None:
    tfrnet("rollback", "--to", 1, "--state", files.state)
    tfrnet("export", "--out", tmp_path / "out", "--state", files.state)
    assert "1 applied, 0 rejected" in (tmp_path / "out" / "README.md").read_text()


def test_requests_whose_lines_are_lost_count_without_measurements(
    tfrnet: Tfrnet, files: Files, tmp_path: Path
) -> None:
    change_line(files.state, 2)
    assert tfrnet("repair", "--state", files.state, "--yes").code == 0
    out = tmp_path / "out"
    result = tfrnet("export", "--out", out, "--state", files.state)
    assert result.code == 0, result.err
    applied = len(StateStore.open(files.state).history.applied)
    facts = json.loads((out / "tfrnet.json").read_text())
    assert (applied, facts["requests"], facts["unrecorded"]) == (1, [], 1)
    card = (out / "README.md").read_text()
    assert "after 1 deletion request," in card
    assert "1 applied, 0 rejected" in card
    assert "Of 1 request nothing is recorded here" in card
    assert "nothing was measured" not in card


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize("form", FORMATS.names())
def test_an_existing_folder_is_refused_before_a_model_is_loaded(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, form: str
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    result = tfrnet("export", "--format", form, "--out", tmp_path / "out", "--state", files.state)
    assert result.code == 2
    assert "exists already and is not empty" in result.error
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.txt"]


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--quant", "NONSENSE"], "--format dense does not take --quant"),
        (["--quant", "F16", "--rank", 3], "--format dense does not take --quant or --rank"),
        (["--format", "lora", "--quant", "F16"], "--format lora does not take --quant, but --rank"),
        (["--format", "gguf", "--rank", 64], "--format gguf does not take --rank, but --quant"),
        (["--public"], "--public goes with --push"),
    ],
)
def test_options_without_effect_are_refused(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, options: list[object], message: str
) -> None:
    result = tfrnet("export", *options, "--out", tmp_path / "out", "--state", files.state)
    assert (result.code, result.error) == (2, message)
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_model")
def test_a_method_without_a_mask_is_no_ia3_adapter(tfrnet: Tfrnet, tmp_path: Path) -> None:
    state = shutil.copytree(Path(__file__).parents[1] / "fixtures/states/ga", tmp_path / "ga")
    result = tfrnet("export", "--format", "ia3", "--out", tmp_path / "out", "--state", state)
    assert result.code == 2
    assert "method ga has no mask, so its states cannot become an (IA)3 adapter" in result.error
    assert not (tmp_path / "out").exists()


def test_a_lora_that_would_not_be_exact_is_refused_with_its_counts(
    tfrnet: Tfrnet, files: Files, tmp_path: Path
) -> None:
    options = ["--format", "lora", "--rank", 1, "--out", tmp_path / "out", "--state", files.state]
    result = tfrnet("export", *options)
    assert result.code == 2
    most = int(re.search(r"--rank (\d+)", result.error)[1])
    assert f"changed channels (most: {most}" in result.error
    assert not (tmp_path / "out").exists()
    options[3] = most
    assert tfrnet("export", *options).code == 0


def test_an_import_makes_a_state_with_the_same_mask_to_go_on_from(
    tfrnet: Tfrnet, files: Files, adapter: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new"
    result = tfrnet("import", adapter, "--retain", files.retain, "--state", new, "--json")
    assert result.code == 0, result.err
    old, store = StateStore.open(files.state), StateStore.open(new)
    assert torch.equal(mask_of(store), mask_of(old))
    assert store.manifest.fingerprint == old.manifest.fingerprint
    assert store.manifest.config == old.manifest.config
    assert result.json["digest"] == store.history.digests[1]
    assert store.entries[-1]["from"] == old.history.digests[2]
    assert all(check.passed for check in verify_state(new))
    assert "imported from an adapter" in tfrnet("history", "--state", new).out
    further = tfrnet("forget", "--request", files.request, *files.opening(new))
    assert further.code == 0, further.err
    assert tfrnet("rollback", "--to", 0, "--state", new).code == 0


def test_an_import_is_signed_by_the_key_that_is_given(
    tfrnet: Tfrnet, files: Files, adapter: Path, tmp_path: Path
) -> None:
    new, key = tmp_path / "new", tmp_path / "key.pem"
    options = ["--retain", files.retain, "--state", new]
    inside = tfrnet("import", adapter, *options, "--key", new / "key.pem")
    assert (inside.code, "lies in the state itself" in inside.error) == (2, True)
    assert not new.exists()
    assert tfrnet("import", adapter, *options, "--key", key).code == 0
    store = StateStore.open(new)
    assert store.entries[-1]["kind"] == "import"
    assert store.public_key == read_key(key).public.text
    assert all(check.passed for check in verify_state(new))


def test_a_changed_adapter_is_not_imported(
    tfrnet: Tfrnet, files: Files, adapter: Path, tmp_path: Path
) -> None:
    path = adapter / "adapter_model.safetensors"
    tensors = load_file(path)
    name = sorted(tensors)[0]
    tensors[name][0] *= 0.5
    save_file(tensors, path)
    result = tfrnet("import", adapter, "--retain", files.retain, "--state", tmp_path / "new")
    assert (result.code, "was changed: its digest" in result.error) == (2, True)
    assert not (tmp_path / "new").exists()


def test_what_cannot_be_imported_is_said_in_one_line(
    tfrnet: Tfrnet, files: Files, adapter: Path, tmp_path: Path, tokenizer
) -> None:
    new = tmp_path / "new"
    other = tmp_path / "other"
    tiny.make_model("llama", seed=1).save_pretrained(other)
    tokenizer.save_pretrained(other)
    bare = shutil.copytree(adapter, tmp_path / "bare")
    (bare / "adapter_model.safetensors").write_bytes(b"nothing")
    for arguments, words in (
        ([files.model, "--state", new], "is not an (IA)3 adapter made by"),
        ([bare, "--state", new], "is missing or damaged"),
        ([adapter, "--state", files.state], "holds a state already"),
        ([adapter, "--state", new, "--model", other], "made for another base model"),
    ):
        result = tfrnet("import", *arguments, "--retain", files.retain)
        assert (result.code, words in result.error) == (2, True), result.err
        assert not new.exists()


def test_an_import_that_fails_late_leaves_no_state(
    tfrnet: Tfrnet, files: Files, adapter: Path, tmp_path: Path, monkeypatch
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tfrnet.session.Session.take_in", fail)
    result = tfrnet("import", adapter, "--retain", files.retain, "--state", tmp_path / "new")
    assert (result.code, "No space left" in result.error) == (2, True)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), InputError("it does not fit")], ids=type)
def test_an_import_that_is_stopped_late_leaves_no_state(
    tfrnet: Tfrnet, files: Files, adapter: Path, tmp_path: Path, monkeypatch, error: BaseException
) -> None:
    def stop(*arguments: object) -> None:
        generation_file(tmp_path / "new", 1).write_bytes(b"half of a commit")
        raise error

    monkeypatch.setattr("tfrnet.session.Session.take_in", stop)
    result = tfrnet("import", adapter, "--retain", files.retain, "--state", tmp_path / "new")
    assert result.code == (2 if isinstance(error, InputError) else 130)
    assert not (tmp_path / "new").exists()


def test_no_other_makes_a_state_where_an_import_is_about_to(
    tfrnet: Tfrnet, files: Files, adapter: Path, tmp_path: Path, monkeypatch
) -> None:
    """What another process made there meanwhile would be taken for this one's, and removed."""
    new, import_command = tmp_path / "new", import_module("tfrnet.cli.commands.import")
    real, seen = import_command.load, []

    def load(*arguments, **named):
        with pytest.raises(StateError, match="in use by this process") as caught:
            NewState(new)
        seen.append(caught.value)
        return real(*arguments, **named)

    monkeypatch.setattr(import_command, "load", load)
    result = tfrnet("import", adapter, "--retain", files.retain, "--state", new)
    assert (result.code, len(seen)) == (0, 1)
    assert all(check.passed for check in verify_state(new))


def test_a_state_made_at_the_last_moment_is_refused_and_stays(
    tfrnet: Tfrnet, files: Files, adapter: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(StateStore, "exists", lambda folder: False)
    before = contents(files.state)
    result = tfrnet("import", adapter, "--retain", files.retain, "--state", files.state)
    assert (result.code, "holds a state already" in result.error) == (2, True)
    assert contents(files.state) == before
