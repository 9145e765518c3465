"""What a request leaves on disk: atomic generations and a hash-chained ledger."""
