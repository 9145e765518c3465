"""Programs that make or check what is published. Run from the root: `python -m tools.NAME`."""
