"""Export: what a state made of a model, in the forms that other programs load."""

from tfrnet.core.registry import Registry

FORMATS = Registry("format", "tfrnet.export.formats", "tfrnet.formats", "FORMAT", "name")
