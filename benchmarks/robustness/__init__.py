"""Attacks on runs and on readers: kills, damage, bad inputs, odd environments, memory; `robustness.json` has the counts."""
