"""Predictions of a finished run, and their latency."""
