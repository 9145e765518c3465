"""The attacks on a model that forgot. Every file here is one, found by its name."""
