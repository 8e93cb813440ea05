"""Names of the files and folders of a run that several packages use."""

from __future__ import annotations

from typing import Literal

NETWORK = "network"
"""The network inside a model folder that holds a linear model (`finetune.fallback: tfidf`)."""
STAGES = ("read", "retrieve", "select", "pack", "pretrain", "finetune", "evaluate", "model")
SETTINGS_FILE = "settings.yaml"

# In `read`: the audit of the task's data.
AUDIT = "audit.json"
# In `read`: the answers of the baselines for dev and for the split that is scored.
BASELINES = "baselines.json"

# In `read`, `pack`, `evaluate` and `model`: one folder for each auxiliary task.
TASKS = "tasks"

# Retrieval's results for each shard of the corpus; after a change of the corpus only changed shards are read again.
SCRATCH = "scratch"

# In `retrieve`: the passages that matched a query, the queries, and the query words that occur in the corpus.
RETRIEVED = "retrieved.parquet"
QUERIES = "queries.parquet"
QUERY_WORDS = "words.parquet"
# The bytes of every passage of the corpus by position (uint32); 0 for duplicates and contaminated passages.
PASSAGE_SIZES = "sizes.npy"

# In `select`: the passages of pre-training.
SELECTION = "selection.parquet"
# In `select`, if an objective of pre-training reads it: the domain's passages.
DOMAIN = "domain.parquet"
# In `select`, for influence selection: the most and least helpful texts of each target and class; its working folder.
HELPFUL = "helpful.parquet"
INFLUENCE_FOLDER = "influence"

# In `finetune/seed-N`: the weights of the seed's best step, and its scores and cost. Of several learning rates these
# are of the best; the results of the others are in `finetune/rate-R/seed-N`, without weights.
BEST_WEIGHTS = "best.safetensors"
SEED_RESULT = "result.json"
# With the best weights: the class index that they predict for each dev row.
DEV_PREDICTIONS = "dev_predictions.json"

# In `evaluate`: the scores of all seeds, and their predictions row by row.
RESULTS = "results.json"
PREDICTIONS = "predictions.jsonl"
# Also there: rows of dev and of the scored split with text, probabilities, votes of the seeds and nearest train rows;
# the temperatures and reliability curves; the coordinates of some rows and selected passages.
PREDICTION_TABLE = "predictions.parquet"
CALIBRATION = "calibration.json"
TEXT_MAP = "map.parquet"

# In `model`: what prediction needs besides the files of Hugging Face; absent if nothing is needed.
MODEL_FACTS = "endtask.json"

# In the run's folder: every printed line with its time; files of `report_to`.
RUN_LOG = "run.log"
TRACKERS = "trackers"

# In the run's folder, if requested: the model's latency for one text.
LATENCY = "latency.json"

# In the run's folder, if requested: attention heads and maps of sentence vectors of some models.
ANALYSIS = "analysis.json"

# In the folder of a comparison, if its variants share one: the run that learned their tokenizer.
SHARED_TOKENIZER = "tokenizer"

ExperimentKind = Literal["compare", "search", "few-shot"]


def record_file(kind: ExperimentKind) -> str:
    """Return the name of the record file in an experiment's folder.

    >>> record_file("few-shot")
    'few-shot.json'
    """
    return f"{kind}.json"
