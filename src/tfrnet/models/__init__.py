"""Causal language models: loading, fingerprint, forward pass."""
