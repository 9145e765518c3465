"""ASU: attention smoothing."""
