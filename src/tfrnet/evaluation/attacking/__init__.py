"""What attacks share: the model under attack, other weights for a while, and figures."""
