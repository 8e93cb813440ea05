"""Fine-tuning from pre-training's weights for every learning rate and seed; dev chooses step and rate."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from endtask.config import Budget, Settings
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import TASK, Network, auxiliary_head, reset_auxiliary_heads
from endtask.encoders.weights import load_weights
from endtask.evaluation.evaluate import mean_and_spread
from endtask.evaluation.task_metrics import measure_of
from endtask.io.atomic import write_json
from endtask.io.run_layout import BEST_WEIGHTS, SEED_RESULT
from endtask.io.stage_folder import StageFolder
from endtask.objectives.stream import TextStream
from endtask.objectives.task import FinetunedTask
from endtask.objectives.task_losses import task_objective
from endtask.progress import say
from endtask.seeds import derive
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts, packed_of
from endtask.training.budget_plan import StepCost, flops_of, measure_cost, split_budget, steps_for, with_scoring
from endtask.training.checkpoint import CHECKPOINT
from endtask.training.dev_eval import DevScores
from endtask.training.device import choose_device_context, move
from endtask.training.initial_network import keep_aligned_head, network_for
from endtask.training.phase import Phase
from endtask.training.phase_runner import run_stage_phase
from endtask.training.pretrain import BEST_PRETRAINED, WEIGHTS
from endtask.weighting.alternate import Alternate

Result = dict[str, Any]
END_TASK = "task"
"""The name of the end task's objective."""
_COSTS = ("tokens", "padded_tokens", "flops", "matmul_flops")


def finetune(task: Task, packed: Path, pretrained: Path, settings: Settings, stage: StageFolder) -> dict[str, Any]:
    """Fine-tune every learning rate and seed in the stage's folder; a killed stage keeps those that are finished.

    One network serves them all: its weights are read anew each time, so nothing is compiled twice.
    """
    stage.start()
    context = choose_device_context(settings)
    network = move(network_for(task, packed, settings), settings, context, tokens=tokens_to_read(packed, settings))
    start = pretrained / (BEST_PRETRAINED if settings.finetune.start_from == "best" else WEIGHTS)
    finetuning = _Finetuning(network, task, packed, start, settings, context, stage)
    return finetuning.finetune() if not settings.skip_finetuning else finetuning.take_pretrained()


def finetune_phase(
    network: Network,
    task: Task,
    packed: Path,
    settings: Settings,
    context: DeviceContext,
    *,
    seed: int,
    learning_rate: float | None = None,
) -> Phase:
    """Return the phase of one seed, and set the first weights of the network's heads; the plan may set fewer steps.

    All learning rates share the heads and batches of a seed, so that they differ in nothing else.
    """
    finetune = settings.finetune
    own_seed = derive(settings.seed, "finetune", seed)
    if finetune.head != "pretrained":
        network.reset_task_head(derive(own_seed, "head"))
        reset_auxiliary_heads(network, task, own_seed)
    if finetune.head == "aligned":
        keep_aligned_head(network, settings)
    network.set_dropout(settings.model.dropout)
    tasks = finetuned_tasks(network, task, packed, settings, own_seed)
    return Phase(
        network=network,
        objectives=tasks,
        weighting=alternating(tasks),
        steps=finetune.max_steps or finetune.epochs * batches_per_epoch(tasks),
        settings=finetune,
        learning_rate=learning_rate or finetune.learning_rates[0],
        seed=own_seed,
        context=context,
    )


def finetuned_tasks(
    network: Network, task: Task, packed: Path, settings: Settings, seed: int
) -> dict[str, FinetunedTask]:
    """Return the end task, and by their names the auxiliary tasks that are fine-tuned with it."""
    finetune, found = settings.finetune, {}
    parts = {END_TASK: (task, packed, TASK)}
    for name in settings.scored_tasks:
        parts[name] = task.auxiliary[name], packed_of(packed, name), auxiliary_head(name)
    for name, (one, folder, head) in parts.items():
        stream = TextStream(name, PackedTexts(folder / "train"), network, batch_size=finetune.batch_size, seed=seed)
        found[name] = FinetunedTask(task_objective(one, name, stream, head=head), finetune)
    return found


def alternating(tasks: Mapping[str, Any]) -> Alternate:
    """Return a rule in which every task trains as often as it has batches, so that an epoch reads each text once."""
    return Alternate(*tasks, weights=[steps_per_epoch(task) for task in tasks.values()])


def batches_per_epoch(tasks: Mapping[str, Any]) -> int:
    """Return how many batches it takes to read all texts of all tasks once."""
    return sum(map(steps_per_epoch, tasks.values()))


def steps_per_epoch(task: Any) -> int:
    """Return how many batches it takes to read all texts of a task once."""
    batches: int = task.stream.plan.batches_per_epoch
    return batches


def tokens_to_read(packed: Path, settings: Settings) -> float:
    """Return about how many tokens all trainings read together, without auxiliary tasks and padding."""
    finetune = settings.finetune
    trainings = len(finetune.learning_rates) * len(settings.model_seeds)
    texts = PackedTexts(packed / "train")
    once = float(texts.lengths.sum())
    if finetune.max_steps is None:
        each = finetune.epochs * once
    else:
        size = finetune.batch_size
        each = finetune.max_steps * size.amount * (once / len(texts.lengths) if size.unit == "texts" else 1)
    return float(trainings * each * finetune.passes)


@dataclass(frozen=True)
class _Finetuning:
    network: Network
    task: Task
    packed: Path
    start: Path
    settings: Settings
    context: DeviceContext
    stage: StageFolder

    @property
    def _rates(self) -> tuple[float, ...]:
        return tuple(dict.fromkeys(self.settings.finetune.learning_rates))

    @property
    def _seeds(self) -> tuple[int, ...]:
        return self.settings.model_seeds

    def finetune(self) -> dict[str, Any]:
        """Train what is left; the learning rate with the best mean dev score wins."""
        if "steps" not in self.stage.plan:
            load_weights(self.start, self.network)
            self.stage.set_plan(**self._plan())
        results = {rate: [self._result(rate, seed) for seed in self._seeds] for rate in self._rates}
        metric = measure_of(self.task, self.settings.evaluate).name
        scores = {
            rate: mean_and_spread("dev_", [result["dev"][metric] for result in found])
            for rate, found in results.items()
        }
        best = max(scores, key=lambda rate: scores[rate]["dev_mean"])  # the earlier of equals
        if len(self._rates) > 1:
            self._select(best)
        return {
            "learning_rate": best,
            "rates": [{"learning_rate": rate, **score} for rate, score in scores.items()],
            **self._counts([result for found in results.values() for result in found]),
            **self._seeds_from_pretraining(results[best]),
            "seeds": results[best],
        }

    def _seeds_from_pretraining(self, results: Sequence[Result]) -> dict[str, int]:
        """Return for how many seeds pre-training's model was better, with `keep_better`."""
        if not self.settings.finetune.keep_better:
            return {}
        return {"from_pretraining": sum(result["best_step"] == 0 for result in results)}

    def take_pretrained(self) -> dict[str, Any]:
        """Score pre-training's weights with the head trained there, under the first seed's name."""
        (seed,) = self._seeds
        folder = self._folder(None, seed)
        folder.mkdir(exist_ok=True)
        self.stage.set_plan(steps=0, steps_per_epoch=1)
        load_weights(self.start, self.network)
        result = {"seed": seed, "flops": 0.0, **self._dev_scores(folder).score_untrained()}
        write_json(folder / SEED_RESULT, result)
        return {**self._counts([result]), "seeds": [result]}

    def _plan(self) -> dict[str, Any]:
        """Return the steps of each training: those of the settings, or fewer if the budget allows fewer.

        The end task's epoch is the least, however large the tasks are that alternate with it: a budget holds as it
        would for the end task alone. Dev is scored after every epoch of all tasks, or at the end of less than one.
        """
        phase = self._phase(self._rates[0], self._seeds[0])
        epoch = batches_per_epoch(phase.objectives)
        plan: dict[str, Any] = {"steps": phase.steps, "steps_per_epoch": epoch}
        _, budget = split_budget(self.settings)
        if budget is None:
            return plan
        trainings = len(self._rates) * len(self._seeds)
        share = budget.share(1 / trainings)
        cost = measure_cost(phase, share)
        allowed = self._steps_in(share, cost, epoch)
        plan["steps"] = min(phase.steps, max(steps_per_epoch(phase.objectives[END_TASK]), allowed))
        if plan["steps"] > allowed:
            say(_over_budget(share, allowed, plan["steps"], trainings, cost))
        return {**plan, "budget_per_seed": str(share), "cost_per_step": vars(cost)}

    def _steps_in(self, budget: Budget, cost: StepCost, epoch: int) -> int:
        """Return how many steps fit with the dev scores between them, of which there is one at least."""
        every = self.settings.finetune.eval_steps or epoch
        fit = steps_for(budget, with_scoring(cost, self.packed / "dev", every=every))
        return fit if fit >= every else steps_for(budget, with_scoring(cost, self.packed / "dev", every=fit))

    def _phase(self, rate: float, seed: int) -> Phase:
        return finetune_phase(
            self.network, self.task, self.packed, self.settings, self.context, seed=seed, learning_rate=rate
        )

    def _result(self, rate: float, seed: int) -> Result:
        """Return the scores and costs of a learning rate and a seed, trained now unless they are stored."""
        folder = self._folder(rate, seed)
        path = folder / SEED_RESULT
        if not path.exists():
            write_json(path, self._train(rate, seed, folder))
            (folder / CHECKPOINT).unlink(missing_ok=True)
        result: Result = json.loads(path.read_text(encoding="utf-8"))
        return result

    def _train(self, rate: float, seed: int, folder: Path) -> Result:
        plan, finetune = self.stage.plan, self.settings.finetune
        load_weights(self.start, self.network)
        phase = replace(self._phase(rate, seed), steps=plan["steps"])
        name = f"rate {rate:g} seed {seed}" if len(self._rates) > 1 else f"seed {seed}"
        callback = self._dev_scores(folder).callback(
            finetune.eval_steps or plan["steps_per_epoch"], at_start=finetune.keep_better
        )
        state = run_stage_phase(phase, folder, self.stage, self.settings, label=f"finetune {name}", callback=callback)
        return {"seed": seed, "learning_rate": rate, "flops": flops_of(phase, state["tokens"]), **state}

    def _dev_scores(self, folder: Path) -> DevScores:
        return DevScores(
            self.network,
            self.task,
            self.packed,
            self.settings,
            self.context,
            folder / BEST_WEIGHTS,
            patience=self.settings.finetune.early_stopping_patience,
        )

    def _folder(self, rate: float | None, seed: int) -> Path:
        """Return `seed-N`, where every reader looks; of several rates `rate-R/seed-N` until the best one is known."""
        final = self.stage.partial / f"seed-{seed}"
        if rate is None or len(self._rates) == 1 or (rate == self.stage.plan.get("learning_rate") and final.exists()):
            return final
        return self.stage.partial / f"rate-{rate}" / final.name

    def _select(self, best: float) -> None:
        """Move the folders of the best learning rate to their final place, and delete the weights of the others.

        A kill in between does no harm: the choice is stored first, and the same results lead to the same choice.
        """
        self.stage.set_plan(learning_rate=best)
        for rate in self._rates:
            for folder in [self._folder(rate, seed) for seed in self._seeds]:
                if rate != best:
                    (folder / BEST_WEIGHTS).unlink(missing_ok=True)
                elif folder.parent != self.stage.partial:
                    folder.rename(self.stage.partial / folder.name)
        if (emptied := self.stage.partial / f"rate-{best}").exists():
            emptied.rmdir()

    def _counts(self, results: Sequence[Result]) -> dict[str, Any]:
        sums = {name: sum(result[name] for result in results) for name in _COSTS}
        return {"steps_per_seed": max(result["steps"] for result in results), **sums}


def _over_budget(share: Budget, allowed: int, steps: int, trainings: int, cost: StepCost) -> str:
    """Return the line for a budget that does not allow the least number of steps."""
    together = "" if cost.seconds is None else f", together about {steps * cost.seconds * trainings:,.0f} s"
    return (
        f"finetune: steps that the budget ({share}) allows each fine-tuning: {allowed:,}; an epoch is the least,"
        f" {trainings:,} x {steps:,} steps{together}"
    )
