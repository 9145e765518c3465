"""Fill the tables of the results' documents, and write the run's own outputs anew.

python -m benchmarks.results_document
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.reader_tables import reader_tables
from tfrnet_bench.document import fill_document
from tfrnet_bench.results import read_run
from tfrnet_bench.run.writing import write_outputs
from tfrnet_bench.tables import all_tables

ROOT = Path(__file__).parents[1]
RUN = ROOT / "benchmarks" / "results" / "paper"
DOCUMENT = ROOT / "benchmarks" / "notebook" / "results.md"
# Short pages, with tables of their own.
FOR_READERS = (ROOT / "README.md", ROOT / "docs" / "results.md")


def main() -> None:
    write_outputs(RUN)
    found = read_run(RUN)
    DOCUMENT.write_text(fill_document(DOCUMENT.read_text(), all_tables(*found)))
    for document in FOR_READERS:
        document.write_text(fill_document(document.read_text(), reader_tables(found)))


if __name__ == "__main__":
    main()
