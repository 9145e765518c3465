"""TFR-Net: the order is in model.py, each equation a pure function in the file of its name."""
