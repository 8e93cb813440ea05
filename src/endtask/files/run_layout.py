"""Names in a run's folder that more than one room must know."""

from __future__ import annotations

STAGES = ("read", "retrieve", "select", "pack", "pretrain", "finetune", "evaluate", "model")
SETTINGS_FILE = "settings.yaml"

# Of each seed in `finetune`: the weights of its best epoch, and what it scored and cost.
BEST_WEIGHTS = "best.safetensors"
SEED_RESULT = "result.json"

# In `evaluate`: the scores of all seeds, and what they answered row by row.
RESULTS = "results.json"
PREDICTIONS = "predictions.jsonl"
