"""Predictions of a finished run, and how long they take."""
