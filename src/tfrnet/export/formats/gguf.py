"""gguf: one file for llama.cpp and what is built on it."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tfrnet.core.errors import InputError
from tfrnet.export.format import Format, Job, Options
from tfrnet.export.formats.dense import FORMAT as DENSE
from tfrnet.unlearner import Unlearner

# How the weights are kept, and what the converter calls it.
_CONVERTED = {"F32": "f32", "F16": "f16", "BF16": "bf16", "Q8_0": "q8_0"}
# Those that llama.cpp's own program makes of a file in float32.
_QUANTISED = ("Q4_K_M",)
_CONVERTER = "convert_hf_to_gguf"
_QUANTISER = "llama-quantize"
_DISK_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Gguf(Format):
    """llama.cpp's own converter makes the file of the dense export, whose logits are checked."""

    name = "gguf"
    about = "a file for llama.cpp (--quant F32, F16, BF16, Q8_0 or Q4_K_M)"
    library = "gguf"
    relation = "quantized"
    options = ("quant",)

    def refuse(self, method: type[Unlearner[Any]], options: Options) -> None:
        """Raise for an unknown kind of weights, or where the programs are missing."""
        super().refuse(method, options)
        refuse_quant(options.quant)

    def write(self, job: Job, folder: Path) -> float:
        """Write the dense model, check it, and convert it."""
        dense = folder / "dense"
        difference = DENSE.write(job, dense)
        quant = job.options.quant
        write_gguf(dense, folder / file_name(quant), quant)
        shutil.rmtree(dense)
        return difference

    def facts(self, job: Job) -> dict[str, Any]:
        """Return how the weights are kept."""
        return {"quant": job.options.quant}

    def usage(self, job: Job, folder: str) -> str:
        """Return the commands of llama.cpp and its Python binding."""
        path = f"{folder}/{file_name(job.options.quant)}"
        return (
            "```sh\n"
            f'llama-cli -m {path} -p "The capital of France is"\n'
            f"llama-server -m {path}\n"
            "```\n\n"
            "```python\n"
            "import xllamacpp\n\n"
            "params = xllamacpp.CommonParams()\n"
            f'params.model.path = "{path}"\n'
            "server = xllamacpp.Server(params)\n"
            'answer = server.handle_completions({"prompt": "The capital of France is"})\n'
            'print(answer["choices"][0]["text"])\n'
            "```"
        )


def refuse_quant(quant: str) -> None:
    """Raise for an unknown kind of weights, or where the programs that write it are missing."""
    known = [*_CONVERTED, *_QUANTISED]
    if quant not in known:
        raise InputError(f"unknown --quant {quant!r}; choose from {', '.join(known)}")
    if find_spec(_CONVERTER) is None:
        raise InputError(
            "writing GGUF files needs llama.cpp's converter: pip install 'tfrnet[llamacpp]'"
        )
    if quant in _QUANTISED and shutil.which(_QUANTISER) is None:
        raise InputError(
            f"{quant} needs {_QUANTISER} on the PATH, which comes with llama.cpp "
            "(brew install llama.cpp, or conda install -c conda-forge llama.cpp); "
            "Q8_0 needs nothing more"
        )


def write_gguf(dense: Path, target: Path, quant: str) -> None:
    """Make a file of a model folder."""
    if quant in _CONVERTED:
        _convert(dense, target, _CONVERTED[quant])
        return
    whole = target.with_name("whole.gguf")
    _convert(dense, whole, "f32")
    _run([_QUANTISER, str(whole), str(target), quant], target, "llama-quantize failed")
    whole.unlink()


def file_name(quant: str) -> str:
    """Return the name of the file in its folder."""
    return f"model-{quant}.gguf"


def _convert(dense: Path, target: Path, kind: str) -> None:
    options = ["--outtype", kind, "--outfile", str(target), "--model-name", "unlearned"]
    # In a process of its own: the converter sets up logging and torch for itself. With -P the one
    # installed is run, not a file of its name in the current folder.
    command = [sys.executable, "-P", "-m", _CONVERTER, str(dense), *options]
    _run(command, target, "llama.cpp's converter does not support this model")


def _run(command: list[str], target: Path, problem: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not target.is_file():
        said = [line for line in done.stderr.splitlines() if line.strip() and "%|" not in line]
        reason = said[-1].strip() if said else f"exit code {done.returncode}"
        if number := _disk_trouble(reason):
            raise OSError(number, os.strerror(number))
        raise InputError(f"{problem}: {reason}; nothing was exported")


def _disk_trouble(reason: str) -> int | None:
    """Return the error number if a program failed because it could not write."""
    if re.match(r"OSError: \d+ requested and \d+ written", reason):  # numpy, on a full disk
        return errno.ENOSPC
    found = re.match(r"OSError: \[Errno (\d+)\]", reason)
    return int(found[1]) if found and int(found[1]) in _DISK_TROUBLE else None


FORMAT = Gguf()
