"""JSON Lines, plain or gzipped: written, and read with errors that name file and line."""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, cast

from tfrnet.core import strict_json
from tfrnet.core.errors import InputError
from tfrnet.core.text import printable

MAX_FILE_BYTES = 1 << 30
MAX_LINE_CHARACTERS = 1 << 24


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the line number and value of every non-blank line.

    A file that is one object over several lines counts as one line.
    """
    text = _text(path)
    # Split at line feeds only: JSON text may contain other Unicode line separators.
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > MAX_LINE_CHARACTERS:
            raise InputError(
                f"{path}:{number}: the line has {len(line)} characters, over the limit of "
                f"{MAX_LINE_CHARACTERS}; split it"
            )
        if line.strip():
            try:
                yield number, strict_json.parse(line)
            except ValueError as error:
                if text[: text.index(line)].strip() == "" and (whole := _one_object(text)):
                    yield number, whole
                    return
                what = printable(str(error))
                raise InputError(
                    f"{path}:{number}: not JSON ({what}); each line is one whole JSON object"
                ) from None


def write_json_lines(path: Path, values: Iterable[object]) -> None:
    """Write values to a file, one a line, so that the file has all of them or is not there."""
    from tfrnet.core import files  # not where only reading is wanted: it needs a POSIX system

    data = "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values).encode()
    # Without a time stamp, so that the same values are the same file.
    files.replace_file(path, gzip.compress(data, mtime=0) if _is_packed(path) else data)


def _one_object(text: str) -> dict[str, Any] | None:
    """Return the object that a whole file is, over several lines as an editor lays it out."""
    if len(text) > MAX_LINE_CHARACTERS:
        return None
    try:
        value = strict_json.parse(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _text(path: Path) -> str:
    try:
        with _opened(path) as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise InputError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB; split it")
        # Some editors begin a file with a byte-order mark.
        content = content.removeprefix(codecs.BOM_UTF8)
        return content.decode("utf-8")
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder; a JSON Lines file is needed") from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: not UTF-8 text (byte {error.start})") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} is not a complete gzip file ({error})") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def _opened(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if _is_packed(path) else path.open("rb")


def _is_packed(path: Path) -> bool:
    return path.suffix == ".gz"
