"""Save the model of the best seed as a Hugging Face folder."""

from __future__ import annotations

from endtask.config import Settings
from endtask.io.run_layout import BEST_WEIGHTS, TASKS
from endtask.io.stage_folder import StageFolder
from endtask.pipeline.stage import Counts, Finished, RunData, Stage


class Model(Stage):
    """Writes the model folder, and one for each auxiliary task."""

    name = "model"

    def settings_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the choice of the model; the fingerprints of earlier stages cover all other settings."""
        return ("finetune.fallback",)

    def run(self, data: RunData, stage: StageFolder, finished: Finished) -> Counts:
        """Save the models."""
        from endtask.export.linear_folder import better_linear_model, save_linear_model
        from endtask.export.model_folder import save_auxiliary_model, save_model
        from endtask.training.initial_network import network_for, network_of_auxiliary_task

        folder, packed, evaluated = stage.start(), finished["pack"], finished["evaluate"]
        network = network_for(data.task, packed, data.settings)
        counts = save_model(network, data.task, packed, finished["finetune"], evaluated, data.requested, folder)
        linear = better_linear_model(data.task, data.requested, counts["dev"])
        if linear is not None:
            return counts | save_linear_model(linear, data.task, data.requested, folder)
        seed = counts["seed"]
        weights = finished["finetune"] / f"seed-{seed}" / BEST_WEIGHTS
        for name in data.settings.scored_tasks:
            task = data.task.auxiliary[name]
            network = network_of_auxiliary_task(data.task, name, packed, data.settings, weights)
            target = folder / TASKS / name
            save_auxiliary_model(network, name, task, packed, evaluated, data.requested, target, seed=seed)
        return counts
