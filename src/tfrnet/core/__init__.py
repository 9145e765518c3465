"""What every other room stands on: errors, settings, records, files. It imports nothing of ours."""

__version__ = "0.1.0"
