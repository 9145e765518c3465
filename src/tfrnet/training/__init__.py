"""What methods that train have in common: objectives, weights, adapters, the loop."""
