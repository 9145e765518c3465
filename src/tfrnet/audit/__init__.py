"""What a request did, measured on examples that no method sees."""
