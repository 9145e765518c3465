"""Mutated input: whatever a file or an option holds, it is taken or refused in one clear line."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import tiny
from tests.campaign.mutations import mutated, mutated_json, mutated_json_lines
from tests.campaign.result import Result
from tests.state.made_up import commit, create
from tfrnet.cli.main import main
from tfrnet.core.errors import TfrnetError
from tfrnet.core.settings import Settings
from tfrnet.data.requests import read_examples, read_requests
from tfrnet.method import find_method, method_names
from tfrnet.method_state import settings_of, verify_state
from tfrnet.models.load import load_model
from tfrnet.state.backup import back_up
from tfrnet.state.restore import check as check_backup
from tfrnet.state.store import StateStore

EXPECTED = "taken, or refused in one line"

# Longer than this for so little input is a hang.
_SECONDS = 20
# So many in a hundred go through the whole command line.
_BY_COMMAND = 2


@dataclass(frozen=True)
class Target:
    """A kind of input: a file to change, how, what reads it, and its share of all attempts.

    Now and then it is a command that reads it, so that all that is printed is seen too. Of its
    words, one that is a function is worked out when it is run.
    """

    name: str
    share: float
    path: Path
    mutate: Callable[[bytes, random.Random], bytes]
    read: Callable[[], object]
    command: tuple[object, ...]


def run(count: int, seed: int, work: Path, names: tuple[str, ...] = ()) -> Result:
    """Try `count` inputs in all."""
    result = Result("inputs", EXPECTED, seed)
    work.mkdir(parents=True, exist_ok=True)
    targets = [target for target in _targets(work) if not names or target.name in names]
    whole = sum(target.share for target in targets)
    with _quiet(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFRNET_CACHE", str(work / "cache"))
        for target in targets:
            _try(target, max(1, round(count * target.share / whole)), seed, result)
    return result


def _try(target: Target, count: int, seed: int, result: Result) -> None:
    chance = random.Random(f"{seed} {target.name}")
    original = target.path.read_bytes()
    for number in range(count):
        target.path.write_bytes(target.mutate(original, chance))
        if chance.random() * 100 < _BY_COMMAND:
            problem = _problem_of_command(target.command)
            result.count(f"{target.name}, read by the command")
        else:
            problem = _problem(target.read)
            result.count(target.name)
        # What was made of a model's file is not for the next one.
        shutil.rmtree(os.environ["TFRNET_CACHE"], ignore_errors=True)
        if problem:
            result.wrong.append(f"{target.name} {number} (seed {seed}): {problem}")
    target.path.write_bytes(original)


def _problem(read: Callable[[], object]) -> str:
    """Return what is wrong with how an input was met, if anything is."""
    try:
        with _limited():
            read()
    except TfrnetError:
        return ""
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return ""


def _problem_of_command(arguments: tuple[object, ...]) -> str:
    out, err = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = ["tfrnet", *(str(each() if callable(each) else each) for each in arguments)]
    code: object = None
    try:
        with _limited(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        code = end.code
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        sys.argv = before
    said = err.getvalue()
    if code not in (0, 1, 2):
        return f"exit code {code}"
    if "Traceback" in said or "error: unexpected " in said or len(said.splitlines()) > 1:
        return f"exit code {code}, and said: {said[-300:]!r}"
    strange = [c for c in out.getvalue() + said if not c.isprintable() and c != "\n"]
    return f"{strange[0]!r} reaches the terminal" if strange else ""


class _TooLongError(BaseException):
    """Nothing catches it on the way."""


@contextmanager
def _limited() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _TooLongError(f"no answer after {_SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _quiet() -> Iterator[None]:
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _targets(work: Path) -> list[Target]:
    return [
        *_data_targets(work),
        *_option_targets(work),
        *_state_targets(work),
        *_model_targets(work),
    ]


def _data_targets(work: Path) -> list[Target]:
    requests = [r.to_dict() for r in tiny.requests(3, size=2)]
    examples = [*(e.to_dict() for e in tiny.examples(5)), {"text": "A plain text."}]
    stream = _lines(work / "stream.jsonl", requests)
    retain = _lines(work / "retain.jsonl", examples)
    guard = _lines(work / "guard.jsonl", examples)
    # There is no such model, so that a command ends once its input is read.
    data = ("run", "--stream", stream, "--retain", retain, "--guard", guard)
    command = (*data, "--model", work / "no-model", "--state", work / "no-state")
    change = mutated_json_lines
    return [
        Target("requests", 0.30, stream, change, lambda: read_requests(stream), command),
        Target("retain", 0.15, retain, change, lambda: read_examples(retain), command),
        Target("guard", 0.13, guard, change, lambda: read_examples(guard), command),
    ]


def _option_targets(work: Path) -> list[Target]:
    """One target for each method: a setting of it, changed."""
    made = []
    files = ("--stream", work / "stream.jsonl", "--retain", work / "retain.jsonl")
    command = ("run", *files, "--model", work / "no-model", "--state", work / "no-state")
    for name in method_names():
        config = find_method(name).config_class()
        path = work / f"{name}.option"
        path.write_text("\n".join(f"{key}={value}" for key, value in config.to_dict().items()))
        option = _text_of(path)
        made.append(
            Target(
                *("options", 0.10 / len(method_names()), path, _one_option),
                _overriding(config, option),
                (*command, "--method", name, "--set", option),
            )
        )
    return made


def _one_option(lines: bytes, chance: random.Random) -> bytes:
    return mutated(chance.choice(lines.splitlines()), chance)


def _text_of(path: Path) -> Callable[[], str]:
    # The bytes that a shell hands over and that are no text arrive like this.
    return lambda: path.read_bytes().decode("utf-8", "surrogateescape")


def _overriding(config: Settings, option: Callable[[], str]) -> Callable[[], object]:
    return lambda: config.with_overrides([option()])


def _state_targets(work: Path) -> list[Target]:
    def target(
        name: str, share: float, file: str, mutate: Callable[[bytes, random.Random], bytes]
    ) -> Target:
        folder = _state(work / f"state of {name}")
        command = ("verify", "--state", folder)
        return Target(name, share, folder / file, mutate, lambda: _use(folder), command)

    backup = work / "state.tar"
    back_up(_state(work / "state"), backup)
    newest = "generations/00000003.safetensors"
    return [
        target("manifests", 0.08, "manifest.json", mutated_json),
        target("ledgers", 0.10, "ledger.jsonl", mutated_json_lines),
        target("pointers", 0.02, "current.json", mutated_json),
        target("generations", 0.04, newest, _mutated_tensors),
        Target(
            *("backups", 0.03, backup, mutated, lambda: check_backup(backup)),
            ("restore", backup, "--state", work / "no" / "state"),
        ),
    ]


def _state(folder: Path) -> Path:
    with create(folder) as store:
        for number in (1, 2):
            commit(store, number)
        store.rollback(1)
    return folder


def _use(folder: Path) -> None:
    verify_state(folder)
    store = StateStore.open(folder)
    settings_of(store.manifest)
    store.load()
    assert store.entries


def _mutated_tensors(data: bytes, chance: random.Random) -> bytes:
    """Return a safetensors file with another header, of the right length more often than not."""
    size = int.from_bytes(data[:8], "little")
    header = mutated_json(data[8 : 8 + size].rstrip(), chance)
    length = len(header) if chance.random() < 0.8 else chance.choice((0, 1, size, 2**40, 2**63))
    return length.to_bytes(8, "little") + header + data[8 + size :]


def _model_targets(work: Path) -> list[Target]:
    """Models: the header of the weights, and the structure of a GGUF file."""
    folder = work / "model"
    tiny.make_model("llama").save_pretrained(folder)
    tiny.make_tokenizer().save_pretrained(folder)
    file = tiny_gguf(work / "tiny.gguf")
    weights = folder / "model.safetensors"
    asking = ("generate", "--untouched", "--prompt", "Item 1", "--max-new-tokens", 1)
    asking += ("--device", "cpu", "--model")
    return [
        Target(
            *("safetensors headers", 0.04, weights, _mutated_tensors),
            *(lambda: load_model(str(folder), device="cpu"), (*asking, folder)),
        ),
        Target(
            *("GGUF structure", 0.01, file, _mutated_gguf),
            *(lambda: load_model(str(file), device="cpu"), (*asking, file)),
        ),
    ]


def tiny_gguf(path: Path, words: Sequence[str] = (), merges: Sequence[str] = ()) -> Path:
    """Write a GGUF file of a very small LLaMA, whose tokenizer may have more words and merges."""
    import gguf
    import numpy as np

    width, inner = 32, 48
    tokens = ["t", *map(str, range(10)), *(f"t{n}" for n in range(10)), *words]
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(8)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * len(tokens))
    writer.add_token_merges([*(f"t {n}" for n in range(10)), *merges])
    writer.add_eos_token_id(0)
    shapes = {
        "token_embd.weight": (len(tokens), width),
        "output_norm.weight": (width,),
        "output.weight": (len(tokens), width),
        "blk.0.attn_norm.weight": (width,),
        "blk.0.ffn_norm.weight": (width,),
        "blk.0.attn_q.weight": (width, width),
        "blk.0.attn_k.weight": (width // 2, width),
        "blk.0.attn_v.weight": (width // 2, width),
        "blk.0.attn_output.weight": (width, width),
        "blk.0.ffn_gate.weight": (inner, width),
        "blk.0.ffn_up.weight": (inner, width),
        "blk.0.ffn_down.weight": (width, inner),
    }
    random_numbers = np.random.default_rng(0)
    for name, shape in shapes.items():
        writer.add_tensor(name, random_numbers.standard_normal(shape, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _mutated_gguf(data: bytes, chance: random.Random) -> bytes:
    """Change the structure, which comes before the numbers."""
    end = data.index(b"blk.0.ffn_down.weight") + 60
    return mutated(data[:end], chance) + data[end:]


def _lines(path: Path, values: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path
