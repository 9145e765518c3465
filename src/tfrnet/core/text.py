"""Text that may come from anybody: what of it may be printed, and what may be a name."""

from __future__ import annotations

import re

# Control characters, line and paragraph separators, characters that are not seen or turn the
# direction of writing round, and halves of surrogate pairs. The same stands in data/schema.
UNPRINTABLE = (
    "[\\x00-\\x1f\\x7f-\\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\\ud800-\\udfff]"
)
_UNPRINTABLE = re.compile(UNPRINTABLE)


def is_printable(text: str) -> bool:
    """Tell whether a text shows as what it is, on one line of a terminal."""
    return not _UNPRINTABLE.search(text)


def printable(text: str) -> str:
    """Return a text with everything escaped that would not show as what it is."""
    return _UNPRINTABLE.sub(lambda found: _escaped(found.group()), text)


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
