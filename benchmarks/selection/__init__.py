"""Scoring candidates by influence against other ways to the same products."""
