"""Names in a run's folder that more than one room must know."""

from __future__ import annotations

STAGES = ("read", "retrieve", "select", "pack", "pretrain", "finetune", "evaluate", "model")
SETTINGS_FILE = "settings.yaml"

# In `read`: what was found in the task's data.
AUDIT = "audit.json"

# In `read`, `pack`, `evaluate` and `model`: the folder with one folder for each auxiliary task.
TASKS = "tasks"

# What retrieval read of each shard of the corpus; a changed corpus redoes only what changed.
SCRATCH = "scratch"

# In `retrieve`: the passages that somebody asked for, the queries, and those of their words that the corpus holds.
RETRIEVED = "retrieved.parquet"
QUERIES = "queries.parquet"
QUERY_WORDS = "words.parquet"
# The bytes of every passage of the corpus by position (uint32); 0 for one that the contamination filter or a duplicate keeps out.
PASSAGE_SIZES = "sizes.npy"

# In `select`: the passages that are trained on.
SELECTION = "selection.parquet"
# Beside it, where an objective of pre-training reads it: the domain's passages.
DOMAIN = "domain.parquet"
# There too, where gradients chose: the texts that help each target and class most and least; while it runs, its work.
HELPFUL = "helpful.parquet"
INFLUENCE_WORK = "influence"

# Of each seed in `finetune/seed-N`: the weights of its best step, and what it scored and cost. Of several learning
# rates these are the best one's; the others stand in `finetune/rate-R/seed-N`, without weights.
BEST_WEIGHTS = "best.safetensors"
SEED_RESULT = "result.json"
# Beside the best weights: the class number that they gave each dev row.
DEV_PREDICTIONS = "dev_predictions.json"

# In `evaluate`: the scores of all seeds, and what they answered row by row.
RESULTS = "results.json"
PREDICTIONS = "predictions.jsonl"

# In `model`: what prediction must know and no file of Hugging Face's says; only there if there is something to say.
MODEL_FACTS = "endtask.json"

# In the run's folder, once asked for: how long the model takes for one text.
LATENCY = "latency.json"
