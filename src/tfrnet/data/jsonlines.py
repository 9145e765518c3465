"""Reading JSON Lines, plain or gzipped, with errors that name file and line."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfrnet.core.errors import InputError


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the line number and value of every line that is not blank."""
    # Only line feeds end a line: JSON text may hold other Unicode line separators.
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if line.strip():
            try:
                yield number, json.loads(line, parse_constant=_refuse_constant)
            except ValueError as error:
                raise InputError(f"{path}:{number}: not JSON ({error})") from None


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder; a JSON Lines file is needed") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start})") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} is not a whole gzip file ({error})") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")
