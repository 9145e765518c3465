"""Trying to break it, at length: `make campaign`, or one campaign with `python -m tests.campaign`.

One file is one campaign. Each has a function `run` that is given how many attempts to make, a seed
and a folder to work in, and returns a `Result`. The test suite runs each with a small count.
"""
