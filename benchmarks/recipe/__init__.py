"""The recipe: variants screened on dev, the ladder from the paper's recipe to ours, and the final scores on test."""
