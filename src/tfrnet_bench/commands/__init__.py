"""The subcommands that this package adds to tfrnet."""
