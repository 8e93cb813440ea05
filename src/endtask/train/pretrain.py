"""Stage 1: masked LM on the selection, jointly with the task, from random weights (TLM)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from endtask.files.stage_folder import StageFolder
from endtask.models.network import Network, build_network
from endtask.models.weights import save_weights
from endtask.objectives.base import Objective
from endtask.objectives.masked_lm import MaskedLM
from endtask.objectives.masking import Masking
from endtask.objectives.task import JointClassification
from endtask.seeds import derive
from endtask.settings import Settings
from endtask.task import Task
from endtask.text.packed import PackedTexts
from endtask.text.tokenizer import load_tokenizer
from endtask.train.checkpoint import CHECKPOINT
from endtask.train.device import choose_device
from endtask.train.loop import Phase
from endtask.train.phase_run import run_phase
from endtask.train.plan import measure_cost, parameters_of, split_budget, steps_for, training_flops
from endtask.weighting.base import Weighting
from endtask.weighting.equal import Equal
from endtask.weighting.interleave import Interleave

WEIGHTS = "weights.safetensors"


def pretrain(task: Task, packed: Path, settings: Settings, stage: StageFolder) -> dict[str, Any]:
    """Train the joint stage in the stage's folder; returns counts for the manifest."""
    folder = stage.start()
    phase = pretrain_phase(task, packed, settings)
    if "steps" not in stage.plan:
        budget, _ = split_budget(settings.budget, settings.finetune.budget_share)
        cost = measure_cost(phase, budget)
        stage.set_plan(steps=steps_for(budget, cost), budget=str(budget), cost_per_step=vars(cost))
    phase = replace(phase, steps=stage.plan["steps"])
    memory = run_phase(
        phase,
        folder,
        label="pretrain",
        checkpoint_steps=settings.train.checkpoint_steps,
        on_checkpoint=stage.keep_time,
    )
    save_weights(folder / WEIGHTS, phase.network)
    (folder / CHECKPOINT).unlink(missing_ok=True)
    parameters = parameters_of(phase)
    flops = training_flops(parameters, memory["tokens"])
    return {
        "steps": phase.steps,
        "parameters": parameters,
        "flops": flops,
        "device": str(phase.device),
        **memory,
    }


def pretrain_phase(task: Task, packed: Path, settings: Settings) -> Phase:
    """The phase with its objectives and weighting; the number of steps is put in by the plan."""
    network = network_for(task, packed, settings)
    network.set_dropout(settings.train.dropout)
    objectives, weighting = joint_objectives(task, packed, settings)
    return Phase(
        network=network,
        objectives=objectives,
        weighting=weighting,
        steps=1,
        learning_rate=settings.train.learning_rate,
        weight_decay=settings.train.weight_decay,
        warmup_fraction=settings.train.warmup_fraction,
        max_grad_norm=settings.train.max_grad_norm,
        seed=derive(settings.seed, "pretrain"),
        device=choose_device(settings),
    )


def joint_objectives(task: Task, packed: Path, settings: Settings) -> tuple[dict[str, Objective], Weighting]:
    """TLM's external and internal objectives; without external text, the internal one alone."""
    tokenizer = load_tokenizer(packed / "tokenizer")
    train = settings.train
    masking = Masking(train.mask_probability, tokenizer.mask_token_id, len(tokenizer), tuple(tokenizer.all_special_ids))
    seed = derive(settings.seed, "pretrain", "data")
    internal = JointClassification(
        PackedTexts(packed / "internal"),
        np.asarray(task.label_numbers("train")),
        masking,
        rho2=train.rho2,
        normalize=train.normalize_internal_loss,
        batch_size=train.batch_size,
        pad_id=tokenizer.pad_token_id,
        seed=seed,
    )
    texts = PackedTexts(packed / "external")
    if len(texts) == 0:
        return {internal.name: internal}, Equal(internal.name)
    external = MaskedLM(
        "external",
        texts,
        masking,
        batch_size=train.batch_size,
        pad_id=tokenizer.pad_token_id,
        seed=seed,
    )
    both: dict[str, Objective] = {external.name: external, internal.name: internal}
    return both, Interleave(external.name, internal.name, train.rho1)


def network_for(task: Task, packed: Path, settings: Settings) -> Network:
    """The run's network with its random weights."""
    tokenizer = load_tokenizer(packed / "tokenizer")
    return build_network(
        settings.model,
        vocabulary=len(tokenizer),
        special_ids={
            "pad": tokenizer.pad_token_id,
            "cls": tokenizer.cls_token_id,
            "sep": tokenizer.sep_token_id,
        },
        labels=task.labels,
        seed=derive(settings.seed, "weights"),
    )
