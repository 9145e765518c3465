"""Running a grid of cells: planned, shared among processes, resumed."""
