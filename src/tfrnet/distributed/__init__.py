"""Runs with several processes, on one or more machines."""
