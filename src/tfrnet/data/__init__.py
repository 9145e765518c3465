"""Examples, requests and the files they come in."""
