"""The paper's experiments: the grid, its results, tables, figures and report."""
