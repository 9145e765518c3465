"""The mask over projection channels: which there are, how it is applied, how it is folded in."""
