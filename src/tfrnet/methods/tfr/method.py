"""TFR-Net as one of the methods."""

from tfrnet.methods.tfr.model import TFRNet

METHOD = TFRNet
