"""What an actor of a cluster does: it builds the scorer of influence selection once, and scores shards of units."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from endtask.executors.base import Job, Report
from endtask.io.selection_table import read_statistics
from endtask.selectors.influence.cluster import context_of
from endtask.selectors.influence.config import influence_config
from endtask.selectors.influence.runner import InfluenceRunner
from endtask.selectors.influence.scorer import Scorer, Shards, ShardStatistics


def handle(job: Job, report: Report) -> None:
    """Score a shard."""
    common = {name: value for name, value in job.items() if name != "shard"}
    shards, scorer, statistics = _prepared(json.dumps(common))
    shards.score_shard(job["shard"], scorer, statistics, lambda units: report(units=units))


@lru_cache(maxsize=1)
def _prepared(common: str) -> tuple[Shards, Scorer, ShardStatistics]:
    """Load the fitted models, and compute the gradients of the targets."""
    job = json.loads(common)
    context = context_of(Path(job["folder"]), Path(job["retrieved"]))
    assert context.run is not None
    runner = InfluenceRunner(context, read_statistics(context.table), influence_config(context.run))
    return runner.prepared(job["candidates"], job["memory"], shard_size=job["shard_size"], compiled=job["compiled"])
