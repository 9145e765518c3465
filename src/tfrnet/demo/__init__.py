"""The demo: a corpus of facts and a stream of requests to forget some of them."""
