"""One run by several processes, on one machine or many."""
