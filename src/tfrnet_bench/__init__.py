"""Experiments that can be run again: trials on streams, and the search for settings."""
