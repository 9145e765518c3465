"""Whether a tokenizer reads words, also that of a model that is in the cache already."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from tfrnet.data.examples import tokenise
from tfrnet.models.cache import CHECKED

# How many of a tokenizer's words are tried on itself.
_TRIED = 200


def reads_letters(tokenizer: Any) -> bool:
    """Whether a tokenizer takes most of its own words apart, down to letters.

    Transformers before 5.18 loses the merges of Gemma's GGUF files, and then nothing else shows it.
    """
    words = [word for word in tokenizer.get_vocab() if word.isascii() and word.isalpha()]
    words = sorted((word for word in words if len(word) > 3), key=len)[-_TRIED:]
    apart = [word for word in words if len(tokenise(word, tokenizer)) >= len(word)]
    return len(apart) > len(words) / 2


def is_made(target: Path) -> bool:
    """Whether a model is in the cache, and no earlier version has left it with a misread tokenizer.

    A tokenizer that can be read is looked at once.
    """
    if not target.is_dir() or (target / CHECKED).exists():
        return target.is_dir()
    from transformers import AutoTokenizer

    try:
        misread = reads_letters(AutoTokenizer.from_pretrained(target, trust_remote_code=False))
    except Exception:  # whatever is wrong with the folder is told when it is loaded
        return True
    if not misread:
        with suppress(OSError):  # a cache that only others may write
            (target / CHECKED).touch()
    return not misread
