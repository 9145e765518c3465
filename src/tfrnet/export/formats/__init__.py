"""The formats, one file each; `tfrnet.export.format` says what a format is."""
