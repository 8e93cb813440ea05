"""Export the trained model for other tools."""
