"""What training methods share: objectives, weights, adapters, the loop."""
