"""The method GA."""
