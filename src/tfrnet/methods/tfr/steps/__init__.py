"""The ways to move the mask: the paper's (select), Fisher-weighted, and solved (the default)."""
