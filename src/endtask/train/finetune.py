"""Stage 2: plain fine-tuning from the last weights of stage 1 with a new head, once per seed, best epoch by dev."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from endtask.evaluate.metrics import score_all
from endtask.evaluate.probabilities import class_probabilities
from endtask.files.atomic import write_json
from endtask.files.run_layout import BEST_WEIGHTS, SEED_RESULT
from endtask.files.stage_folder import StageFolder
from endtask.models.network import Network
from endtask.models.weights import load_weights, save_weights
from endtask.objectives.task import Classification
from endtask.seeds import derive
from endtask.settings import Settings
from endtask.task import Task
from endtask.text.packed import PackedTexts
from endtask.train.checkpoint import CHECKPOINT
from endtask.train.device import choose_device
from endtask.train.loop import Phase
from endtask.train.phase_run import Memory, Pause, run_phase
from endtask.train.plan import measure_cost, parameters_of, split_budget, steps_for, training_flops
from endtask.train.pretrain import WEIGHTS, network_for
from endtask.weighting.equal import Equal


def finetune(task: Task, packed: Path, pretrained: Path, settings: Settings, stage: StageFolder) -> dict[str, Any]:
    """Fine-tune every seed in the stage's folder; finished seeds are kept when a killed stage goes on."""
    folder = stage.start()
    network = network_for(task, packed, settings)
    if "steps" not in stage.plan:
        load_weights(pretrained / WEIGHTS, network)
        phase = finetune_phase(network, task, packed, settings, seed=settings.finetune.seeds[0])
        stage.set_plan(**_plan(phase, packed, settings))
    results = []
    for seed in settings.finetune.seeds:
        if not (folder / f"seed-{seed}" / SEED_RESULT).exists():
            load_weights(pretrained / WEIGHTS, network)
            _finetune_seed(network, task, packed, settings, stage, seed)
        results.append(json.loads((folder / f"seed-{seed}" / SEED_RESULT).read_text(encoding="utf-8")))
    return {
        "steps_per_seed": stage.plan["steps"],
        "tokens": sum(result["tokens"] for result in results),
        "padded_tokens": sum(result["padded_tokens"] for result in results),
        "flops": sum(result["flops"] for result in results),
        "seeds": results,
    }


def finetune_phase(network: Network, task: Task, packed: Path, settings: Settings, *, seed: int) -> Phase:
    """The phase of one seed, with the network's task head reset; the number of steps is put in by the plan."""
    finetune = settings.finetune
    seed_here = derive(settings.seed, "finetune", seed)
    network.reset_task_head(derive(seed_here, "head"))
    network.set_dropout(settings.model.dropout)
    objective = Classification(
        PackedTexts(packed / "train"),
        np.asarray(task.label_numbers("train")),
        batch_size=finetune.batch_size,
        pad_id=network.config.pad_token_id,
        seed=seed_here,
    )
    return Phase(
        network=network,
        objectives={objective.name: objective},
        weighting=Equal(objective.name),
        steps=finetune.epochs * objective.plan.batches_per_epoch,
        learning_rate=finetune.learning_rate,
        weight_decay=finetune.weight_decay,
        warmup_fraction=finetune.warmup_fraction,
        max_grad_norm=finetune.max_grad_norm,
        seed=seed_here,
        device=choose_device(settings),
    )


def _plan(phase: Phase, packed: Path, settings: Settings) -> dict[str, Any]:
    """Steps per seed: the epochs asked for, or fewer if the budget's share says so, but one epoch at least."""
    epoch = phase.steps // settings.finetune.epochs
    plan: dict[str, Any] = {"steps": phase.steps, "steps_per_epoch": epoch}
    _, budget = split_budget(settings.budget, settings.finetune.budget_share)
    if budget is None:
        return plan
    share = budget.share(1 / len(settings.finetune.seeds))
    cost = measure_cost(phase, share)
    # Scoring dev after each epoch is a forward pass, a third of a training step per text.
    scoring = len(PackedTexts(packed / "dev")) / (3 * len(PackedTexts(packed / "train")))
    with_scoring = replace(cost, seconds=cost.seconds * (1 + scoring) if cost.seconds else None)
    plan["steps"] = max(epoch, min(phase.steps, steps_for(share, with_scoring)))
    return {**plan, "budget_per_seed": str(share), "cost_per_step": vars(cost)}


def _finetune_seed(
    network: Network, task: Task, packed: Path, settings: Settings, stage: StageFolder, seed: int
) -> None:
    folder = stage.partial / f"seed-{seed}"
    phase = replace(finetune_phase(network, task, packed, settings, seed=seed), steps=stage.plan["steps"])
    dev, truth = PackedTexts(packed / "dev"), task.label_numbers("dev")

    def score_dev(step: int, memory: Memory) -> dict[str, float]:
        probabilities = class_probabilities(
            network,
            dev,
            batch_size=settings.evaluate.batch_size,
            device=phase.device,
        )
        scores = score_all(truth, probabilities.argmax(-1))
        if scores[settings.evaluate.metric] > memory.get("dev", {}).get(settings.evaluate.metric, -1.0):
            memory.update(dev=scores, best_step=step)
            save_weights(folder / BEST_WEIGHTS, network)
        return {f"dev/{name}": value for name, value in scores.items()}

    memory = run_phase(
        phase,
        folder,
        label=f"finetune seed {seed}",
        checkpoint_steps=settings.finetune.checkpoint_steps,
        pause=Pause(stage.plan["steps_per_epoch"], score_dev),
        on_checkpoint=stage.keep_time,
    )
    flops = training_flops(parameters_of(phase), memory["tokens"])
    write_json(folder / SEED_RESULT, {"seed": seed, "steps": phase.steps, "flops": flops, **memory})
    (folder / CHECKPOINT).unlink(missing_ok=True)
