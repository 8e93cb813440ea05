"""Metrics, scores over several seeds, the leak-free part of the test split, simple baselines, tests and intervals."""
