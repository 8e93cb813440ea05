"""Runs: stages in order, fingerprints, external inputs, checks before the start, and reuse of finished stages."""
