"""Metrics: pure functions of measured numbers, without a model."""
