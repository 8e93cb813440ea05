"""What learned weights cost: a META step against a step with equal weights, and against the authors' way."""
