"""Attacks on a model that forgot, and how much they bring back."""
