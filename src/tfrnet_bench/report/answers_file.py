"""Answers that a user wants on a page, read from what `tfrnet generate --json` printed."""

from __future__ import annotations

from pathlib import Path

from tfrnet.core import strict_json
from tfrnet.core.errors import InputError

_NAMES = ("prompt", "before", "after")


def read_answers(path: Path) -> list[dict[str, str]]:
    """Return the prompts with the answers before and after."""
    try:
        rows = strict_json.parse(path.read_bytes())["generations"]
        answers = [{name: row[name] for name in _NAMES} for row in rows]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        answers = [{}]
    if any(type(row.get(name)) is not str for row in answers for name in _NAMES):
        raise InputError(
            f"{path} does not hold answers before and after: it should be what 'tfrnet generate "
            "--state ... --json' printed"
        )
    return answers
