"""The steps that move the mask: select (the paper's), fisher, solve, calibrate (the default)."""
