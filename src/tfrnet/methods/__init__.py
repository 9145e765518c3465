"""The unlearning methods: every file or folder here is one, found by its name."""
