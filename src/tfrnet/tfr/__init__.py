"""TFR-Net: one file per part of the method, each equation a pure function."""
