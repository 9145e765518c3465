"""TFR-Net: model.py has the order of steps; every equation is a pure function."""
