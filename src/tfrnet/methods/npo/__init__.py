"""The method NPO."""
