"""The result of one check of a state or of a document about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One thing looked at: whether it held, and if not, why.

    `repairable` says whether a failure is one that 'tfrnet repair' can look into.
    """

    name: str
    passed: bool
    detail: str = ""
    repairable: bool = False
