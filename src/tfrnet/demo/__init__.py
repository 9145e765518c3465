"""The demonstration: a fact corpus and a stream of requests over it."""
