"""How well a model knows something."""
