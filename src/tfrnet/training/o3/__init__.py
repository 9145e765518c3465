"""The parts of the baseline O3: random targets, a detector of forget prompts, a gated adapter."""
