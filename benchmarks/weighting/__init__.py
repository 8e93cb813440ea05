"""The cost of learned weights: a META step against a step with equal weights, and against the authors' code."""
