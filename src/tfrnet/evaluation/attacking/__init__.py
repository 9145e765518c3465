"""What attacks share: the model under attack, temporary weights and recovery metrics."""
