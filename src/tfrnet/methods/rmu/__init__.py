"""The method RMU."""
