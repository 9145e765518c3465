"""Small models trained on what the experiments forget: recipes, training and model cards."""
