"""The channel mask: selecting channels, applying the mask, folding it into the weights."""
