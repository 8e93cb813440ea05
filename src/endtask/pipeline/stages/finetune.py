"""Fine-tune the pre-trained weights on the task, once per seed."""

from __future__ import annotations

from endtask.config import FinetuneSettings, Settings
from endtask.io.stage_folder import StageFolder
from endtask.pipeline.stage import Counts, Finished, RunData, Stage

_OF_THE_MODEL = "fallback"
"""The setting of the section `finetune` that the stage `model` reads."""
_SETTINGS = (
    *(f"finetune.{key}" for key in FinetuneSettings.model_fields if key != _OF_THE_MODEL),
    *("evaluate.metric", "evaluate.positive_label", "evaluate.threshold", "skip_finetuning"),
)


class Finetune(Stage):
    """Trains each seed and stores its best weights."""

    name = "finetune"
    parallel = True

    def settings_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the section of fine-tuning, and the settings of dev scores."""
        return _SETTINGS

    def run(self, data: RunData, stage: StageFolder, finished: Finished) -> Counts:
        """Train every seed."""
        from endtask.training.device import explain_out_of_memory
        from endtask.training.finetune import finetune

        with explain_out_of_memory():
            return finetune(data.task, finished["pack"], finished["pretrain"], data.settings, stage)
