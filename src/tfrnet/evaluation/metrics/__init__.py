"""Figures made of measurements: pure functions of numbers, without a model."""
