"""`tfrnet cache`: what evaluations have kept, and how to be rid of it."""

from __future__ import annotations

from typing import Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.output import Output


def command(
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove every kept score, and the key of their names.")
    ] = False,
    as_json: opt.AsJson = False,
) -> int:
    """Show how much 'tfrnet eval' has kept, or remove it with --purge.

    The cache holds numbers only (likelihoods of tokens), under names that do not tell what was
    asked, in a folder for its owner alone. Converted models lie elsewhere and stay. Without the
    cache the next evaluation takes longer and finds the same figures.

    Example:

      tfrnet cache --purge
    """
    from tfrnet.evaluation.cache import Cache

    output = Output(as_json)
    cache = Cache()
    entries, size = cache.purge() if purge else cache.size()
    output.say(
        f"{cache.folder}: {entries} entries, {size / 1e6:.1f} MB{' removed' if purge else ''}"
    )
    values = {"folder": str(cache.folder), "entries": entries, "bytes": size, "purged": purge}
    output.result("cache", values)
    return 0
