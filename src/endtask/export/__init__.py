"""The trained model as other tools want it."""
