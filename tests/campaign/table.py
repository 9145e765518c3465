"""The campaigns' results as a table of docs/security.md: `python -m tests.campaign.table`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tfrnet_bench.document import fill_document
from tfrnet_bench.tables.table import Table

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "campaign.json"
DOCUMENT = ROOT / "docs" / "security.md"

WHAT = {
    "kills": "SIGKILL at random instants of run, forget, rollback, prune and export",
    "calls": "system calls that fail (EIO, ENOSPC, EINTR, short writes) or at which it is killed",
    "inputs": "mutated requests, retain and guard data, options, states, backups and models",
    "flips": "bytes of an unsigned and a signed state changed, each one",
    "power": "states that a power cut may leave, torn at 512 and 4,096 bytes",
    "attacks": "attacks on the ledger by somebody without the key",
    "readers": "reads by eight processes beside a writer, and its commits",
}


def campaign_table(document: dict[str, Any]) -> Table:
    """Return the table: what was tried, how often, what was expected, and how often it was not."""
    rows = [
        [WHAT[each["name"]], f"{each['tried']:,}", each["expected"], str(each["wrong"])]
        for each in document["campaigns"]
    ]
    return Table(
        "campaign",
        "The last campaign",
        ["tried", "how often", "expected", "anything else"],
        rows,
        note=f"Seed {document['seed']}, tfrnet {document['versions']['tfrnet']}, "
        f"{document['seconds'] / 60:.0f} minutes on {document['cores']} cores.",
    )


def update_documents() -> None:
    """Write the table into the page."""
    document = json.loads(RESULTS.read_text())
    DOCUMENT.write_text(fill_document(DOCUMENT.read_text(), [campaign_table(document)]))


if __name__ == "__main__":
    update_documents()
