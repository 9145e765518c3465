"""The service: deletion requests and completions over HTTP, on one live model."""
