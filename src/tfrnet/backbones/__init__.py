"""Recipes for models that know what is to be forgotten."""
