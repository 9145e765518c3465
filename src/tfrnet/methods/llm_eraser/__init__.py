"""LLM-Eraser: selective pruning, then an adapter."""
