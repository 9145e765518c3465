"""The hyper-parameter search: the same number of trials, on whole streams, for every method."""
