"""The paper's experiments: a grid of cells, each run once, whoever runs it."""
