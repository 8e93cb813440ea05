"""One loop for every phase; budgets, checkpoints, pre-training and fine-tuning."""
