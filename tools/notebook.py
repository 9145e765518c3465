"""Run the notebook of the examples again, and keep what it prints and draws.

python -m tools.notebook
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "examples" / "forget_and_undo.ipynb"


def main() -> None:
    """Execute all cells in an empty folder, in order, and write the file again."""
    book = nbformat.read(NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        place = {"metadata": {"path": folder}}
        NotebookClient(book, timeout=1800, resources=place, record_timing=False).execute()
    for cell in book.cells:
        if cell.cell_type == "code":
            # Progress bars say nothing to a reader.
            cell.outputs = [out for out in cell.outputs if out.get("name") != "stderr"]
    book.metadata.language_info = {"name": "python"}
    nbformat.write(book, NOTEBOOK)


if __name__ == "__main__":
    main()
