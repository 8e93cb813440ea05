"""A plug-in that makes the shards of influence scoring small, and notes which process scores which shard.

The variable SHARDS_SEEN names the folder of the notes.
"""

from __future__ import annotations

import os
from pathlib import Path

from endtask.executors.base import Job, Report
from endtask.processes import current_processes
from endtask.selectors.influence import scorer, scoring_actor

scorer._FEWEST_UNITS = 10
_handle = scoring_actor.handle


def handle(job: Job, report: Report) -> None:
    Path(os.environ["SHARDS_SEEN"], f"{job['shard']}-{current_processes().rank}").touch()
    _handle(job, report)


scoring_actor.handle = handle
