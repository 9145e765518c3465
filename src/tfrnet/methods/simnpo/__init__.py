"""The method SimNPO."""
