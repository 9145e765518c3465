"""Fill the tables of notebook/results.md from the results, and write the run's own outputs anew.

python -m benchmarks.results_document
"""

from __future__ import annotations

from pathlib import Path

from tfrnet_bench.document import fill_document, stale_tables
from tfrnet_bench.outputs import write_outputs
from tfrnet_bench.results import read_run
from tfrnet_bench.tables import all_tables

ROOT = Path(__file__).parents[1]
RUN = ROOT / "benchmarks" / "results" / "paper"
DOCUMENT = ROOT / "benchmarks" / "notebook" / "results.md"


def main() -> None:
    write_outputs(RUN)
    text, tables = DOCUMENT.read_text(), all_tables(read_run(RUN))
    for name in stale_tables(text, tables):
        print(f"table {name} has changed")
    DOCUMENT.write_text(fill_document(text, tables))


if __name__ == "__main__":
    main()
