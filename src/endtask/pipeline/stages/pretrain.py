"""Pre-train the encoder on the selection and the task."""

from __future__ import annotations

from endtask.config import Settings
from endtask.io.stage_folder import StageFolder
from endtask.pipeline.stage import Counts, Finished, RunData, Stage

_READ = (
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
_READ_BY_ALIGNED = (
    "aligned.recipe",
    "aligned.span_labels",
    "aligned.labelled_tokens",
    "aligned.pairs_from",
    "aligned.guide_acronyms",
    "aligned.entity_markers",
)


class Pretrain(Stage):
    """The weights after pre-training."""

    name = "pretrain"

    def settings_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the sections of the model and of pre-training."""
        metric = ("evaluate.metric",) if settings.pretrain.eval_steps is not None else ()
        return (*_READ, *metric, *(_READ_BY_ALIGNED if settings.reads_aligned else ()))

    def inputs_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the checkpoint that training starts from."""
        return ("checkpoint",)

    def run(self, data: RunData, stage: StageFolder, finished: Finished) -> Counts:
        """Train."""
        from endtask.training.out_of_memory import explained_memory_trouble
        from endtask.training.pretrain import pretrain

        with explained_memory_trouble():
            return pretrain(data.task, finished["pack"], data.settings, stage)
