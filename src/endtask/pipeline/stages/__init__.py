"""The stages of a run, one file each, in the order of a run."""

from __future__ import annotations

from endtask.io.run_layout import STAGES as STAGE_NAMES
from endtask.pipeline.stage import Stage
from endtask.pipeline.stages.evaluate import Evaluate
from endtask.pipeline.stages.finetune import Finetune
from endtask.pipeline.stages.model import Model
from endtask.pipeline.stages.pack import Pack
from endtask.pipeline.stages.pretrain import Pretrain
from endtask.pipeline.stages.read import Read
from endtask.pipeline.stages.retrieve import Retrieve
from endtask.pipeline.stages.select import Select

STAGES: dict[str, Stage] = {
    stage.name: stage for stage in (Read(), Retrieve(), Select(), Pack(), Pretrain(), Finetune(), Evaluate(), Model())
}
"""All stages by name."""

assert tuple(STAGES) == STAGE_NAMES
