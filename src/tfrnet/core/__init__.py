"""The base of all other packages: errors, settings, records, files. Imports nothing of ours."""

__version__ = "0.1.0"
