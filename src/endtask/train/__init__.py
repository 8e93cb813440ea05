"""One loop for every phase; budgets, checkpoints, stage 1 and stage 2."""
