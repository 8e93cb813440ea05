"""Pre-train the encoder on the selection and the task."""

from __future__ import annotations

from endtask.config import Settings
from endtask.io.stage_folder import StageFolder
from endtask.pipeline.stage import Counts, Finished, RunData, Stage

_SETTINGS = (
    "skip_pretraining",
    "model",
    "pretrain",
    "tasks",
    "seed",
    "budget",
    "finetune.budget_share",
    "device",
    "threads",
    "precision",
    "compile",
)


class Pretrain(Stage):
    """Trains the encoder and stores its weights."""

    name = "pretrain"
    parallel = True

    def settings_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the sections of the model and of pre-training."""
        metric = ("evaluate.metric",) if settings.pretrain.eval_steps is not None else ()
        return (*_SETTINGS, *metric)

    def inputs_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the checkpoint that training starts from."""
        return ("checkpoint",)

    def run(self, data: RunData, stage: StageFolder, finished: Finished) -> Counts:
        """Train."""
        from endtask.training.device import explain_out_of_memory
        from endtask.training.pretrain import pretrain

        with explain_out_of_memory():
            return pretrain(data.task, finished["pack"], data.settings, stage)
