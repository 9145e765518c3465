"""Attacks on a model that forgot by a channel mask, and how much they bring back."""
