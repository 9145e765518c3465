"""The subcommands: every file here is one, found by its name."""
