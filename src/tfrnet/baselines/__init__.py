"""Unlearning methods to compare with, one file each."""
