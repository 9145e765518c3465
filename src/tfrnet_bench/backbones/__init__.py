"""Small models that know what is to be forgotten: trained by a recipe, with a card."""
