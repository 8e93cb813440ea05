"""Score the test split with the best weights of each seed."""

from __future__ import annotations

from pathlib import Path

from endtask.config import Settings
from endtask.io.run_layout import BEST_WEIGHTS
from endtask.io.stage_folder import StageFolder
from endtask.pipeline.stage import Counts, Finished, RunData, Stage


class Evaluate(Stage):
    """Scores the models and stores their predictions."""

    name = "evaluate"

    def settings_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the settings of the scores."""
        return ("evaluate.metric", "evaluate.positive_label", "evaluate.threshold")

    def run(self, data: RunData, stage: StageFolder, finished: Finished) -> Counts:
        """Score all tasks."""
        from endtask.evaluation.evaluate import evaluate, evaluate_auxiliary_tasks
        from endtask.training.device import choose_device_context, explain_out_of_memory, move
        from endtask.training.initial_network import network_for

        settings, packed = data.settings, finished["pack"]
        weights = {seed: finished["finetune"] / f"seed-{seed}" / BEST_WEIGHTS for seed in settings.model_seeds}
        context = choose_device_context(settings)
        network = move(network_for(data.task, packed, settings), settings, context)
        folder = stage.start()
        with explain_out_of_memory():
            auxiliary = evaluate_auxiliary_tasks(data.task, packed, weights, network, settings, folder, context)
            counts = evaluate(
                data.task,
                packed,
                weights,
                network,
                settings,
                folder,
                context,
                read=finished["read"],
                auxiliary=auxiliary,
            )
        _send_scores(counts, stage.final.parent, settings)
        return counts


def _send_scores(counts: Counts, run: Path, settings: Settings) -> None:
    """Send the mean scores to the trackers of the settings."""
    from endtask.training.loggers import open_trackers

    metric, names = counts["metric"], {"mean": "", "std": "_std", "leak_free_mean": "_leak_free"}
    scores = {f"{metric}{suffix}": counts[key] for key, suffix in names.items() if key in counts}
    with open_trackers(settings.report_to, run, settings.model_dump(mode="json"), counts["split"]) as trackers:
        trackers.log({"step": 0, **scores})
