"""Fine-tuning of the pre-trained weights for every learning rate and seed; dev scores select the step and the rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from endtask.config import Budget, Settings
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import Network
from endtask.encoders.weights import load_weights
from endtask.evaluation.evaluate import mean_and_spread
from endtask.evaluation.task_metrics import measure_of
from endtask.io.atomic import write_json
from endtask.io.parsing import read_json
from endtask.io.run_layout import BEST_WEIGHTS, SEED_RESULT
from endtask.io.stage_files import read_manifest
from endtask.io.stage_folder import StageFolder
from endtask.processes import current_processes
from endtask.progress import say
from endtask.task import Task
from endtask.training.budget_plan import (
    StepCost,
    flops_of,
    measure_cost,
    split_budget,
    steps_for,
    with_scoring,
    without_seconds_used,
)
from endtask.training.checkpoint import remove_checkpoints
from endtask.training.dev_eval import DevScores
from endtask.training.device import check_arithmetic, choose_device_context, move
from endtask.training.distributed import start_together
from endtask.training.finetune_pacing import pacer_of_run, scoring_of
from endtask.training.finetune_phase import (
    END_TASK,
    batches_per_epoch,
    finetune_phase,
    rounds_of,
    steps_per_epoch,
    tokens_to_read,
    without_rdrop,
)
from endtask.training.initial_network import network_for
from endtask.training.phase import Phase
from endtask.training.phase_runner import run_stage_phase
from endtask.training.pretrain import BEST_PRETRAINED, WEIGHTS

Result = dict[str, Any]
_ENOUGH_FOR_RDROP = 0.85
"""The share of all steps that must fit into the budget with `rdrop: auto`; measured costs of a step vary that much."""
_COSTS = ("tokens", "padded_tokens", "flops", "matmul_flops")


def finetune(task: Task, packed: Path, pretrained: Path, settings: Settings, stage: StageFolder) -> dict[str, Any]:
    """Fine-tune every learning rate and seed in the stage's folder, and return counts for the manifest.

    A killed stage resumes after the last finished seed. All seeds load their weights into one network, so nothing is
    compiled twice. Several processes divide the seeds and rates among them; each trains its own alone.
    """
    start_together(stage)
    if settings.skip_finetuning and not current_processes().is_first:
        return {}
    context = choose_device_context(settings)
    network = move(network_for(task, packed, settings), settings, context, tokens=tokens_to_read(packed, settings))
    start = pretrained / (BEST_PRETRAINED if settings.finetune.start_from == "best" else WEIGHTS)
    runner = _FinetuneRunner(network, task, packed, start, settings, context, stage)
    return runner.score_pretrained() if settings.skip_finetuning else runner.finetune()


@dataclass(frozen=True)
class _FinetuneRunner:
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

    @property
    def _runs(self) -> list[tuple[float, int]]:
        """The learning rate and the seed of each fine-tuning, in order."""
        return [(rate, seed) for rate in self._rates for seed in self._seeds]

    def finetune(self) -> dict[str, Any]:
        """Train the unfinished seeds, select the learning rate with the best mean dev score, and return the counts."""
        processes = current_processes()
        if "steps" not in self.stage.plan:
            load_weights(self.start, self.network)
            self.stage.set_plan(**processes.shared(self._plan() if processes.is_first else {}))
        if processes.is_first:
            check_arithmetic(self.stage, self.context)
        for rate, seed in processes.own(self._runs):
            self._result(rate, seed)
        processes.wait()
        if not processes.is_first:
            return {}
        results = {rate: [self._result(rate, seed) for seed in self._seeds] for rate in self._rates}
        metric = measure_of(self.task, self.settings.evaluate).name
        scores = {
            rate: mean_and_spread("dev_", [result["dev"][metric] for result in of_rate])
            for rate, of_rate in results.items()
        }
        best = max(scores, key=lambda rate: scores[rate]["dev_mean"])  # the first of equals
        if len(self._rates) > 1:
            self._select(best)
        return {
            "learning_rate": best,
            "rates": [{"learning_rate": rate, **score} for rate, score in scores.items()],
            **self._counts([result for of_rate in results.values() for result in of_rate]),
            **self._unchanged_seeds(results[best]),
            "seeds": results[best],
        }

    def _unchanged_seeds(self, results: Sequence[Result]) -> dict[str, int]:
        """Return the number of seeds for which the pre-trained model is better, if `keep_better` is set."""
        if not self.settings.finetune.keep_better:
            return {}
        return {"from_pretraining": sum(result["best_step"] == 0 for result in results)}

    def score_pretrained(self) -> dict[str, Any]:
        """Score the pre-trained weights and head as the result of the only seed, and return the counts."""
        (seed,) = self._seeds
        folder = self._folder(None, seed)
        folder.mkdir(exist_ok=True)
        self.stage.set_plan(steps=0, steps_per_epoch=1)
        load_weights(self.start, self.network)
        result = {"seed": seed, "flops": 0.0, **self._dev_scores(folder).score_untrained()}
        write_json(folder / SEED_RESULT, result)
        return {**self._counts([result]), "seeds": [result]}

    def _plan(self) -> dict[str, Any]:
        """Return the steps of each seed and learning rate: those of the settings, or fewer if the budget requires it.

        A time budget is kept: `ends` is when the stage has used it. The minimum of another budget is an epoch of the
        end task, however large the auxiliary tasks are, so that a budget limits as it would without them. Dev is scored
        after every epoch of all tasks, or at the end if there are fewer steps.
        """
        started, phase = self.stage.seconds, self._phase(self._rates[0], self._seeds[0], {})
        epoch = batches_per_epoch(phase.objectives)
        plan: dict[str, Any] = {"steps": phase.steps, "steps_per_epoch": epoch}
        budget = self._budget()
        if budget is None:
            return plan
        runs = rounds_of(len(self._runs), budget)
        share = budget.share(1 / runs)
        cost = measure_cost(phase, share)
        allowed = self._steps_in(share, cost, epoch)
        if self.settings.finetune.rdrop == "auto" and allowed < _ENOUGH_FOR_RDROP * phase.steps:
            plan["rdrop"] = 0.0
            cost = measure_cost(self._phase(self._rates[0], self._seeds[0], plan), share)
            allowed = self._steps_in(share, cost, epoch)
        plan |= {"budget_per_seed": str(share), "cost_per_step": vars(cost)}
        if budget.seconds is not None:
            return {**plan, "steps": min(phase.steps, allowed), "ends": started + budget.seconds}
        plan["steps"] = min(phase.steps, max(steps_per_epoch(phase.objectives[END_TASK]), allowed))
        if plan["steps"] > allowed:
            say(_over_budget(share, allowed, plan["steps"], runs))
        return plan

    def _budget(self) -> Budget | None:
        """Return the budget of all fine-tunings that is left; None without a limit.

        Of a time budget that is what pre-training has left, but at least half of the plan.
        """
        manifest = read_manifest(self.start.parent) or {}
        _, budget = split_budget(self.settings, manifest.get("plan", {}).get("finetuning_share"))
        whole = self.settings.budget
        if budget is None or whole.seconds is None:
            return budget
        if self.settings.finetune.budget_share != "auto":
            return without_seconds_used(budget, self.stage)
        left = max(0.5 * budget.amount, whole.amount - float(manifest.get("seconds", 0.0)) - self.stage.seconds)
        return whole.share(min(1.0, left / whole.amount))

    def _steps_in(self, budget: Budget, cost: StepCost, epoch: int) -> int:
        """Return how many steps fit into the budget together with their dev scores, at least one."""
        every = self.settings.finetune.eval_steps or epoch
        steps = steps_for(budget, with_scoring(cost, self.packed / "dev", every=every))
        return steps if steps >= every else steps_for(budget, with_scoring(cost, self.packed / "dev", every=steps))

    def _phase(self, rate: float, seed: int, plan: Mapping[str, Any]) -> Phase:
        settings = without_rdrop(self.settings) if plan.get("rdrop") == 0.0 else self.settings
        return finetune_phase(
            self.network, self.task, self.packed, settings, self.context, seed=seed, learning_rate=rate
        )

    def _result(self, rate: float, seed: int) -> Result:
        """Return the stored scores and costs of a learning rate and a seed; train if there are none."""
        folder = self._folder(rate, seed)
        path = folder / SEED_RESULT
        if not path.exists():
            write_json(path, self._train(rate, seed, folder))
        remove_checkpoints(folder)  # also those of a run that was killed in between
        result: Result = read_json(path)
        return result

    def _train(self, rate: float, seed: int, folder: Path) -> Result:
        plan, finetune = self.stage.plan, self.settings.finetune
        load_weights(self.start, self.network)
        whole = self._phase(rate, seed, plan)
        phase, runs_after = replace(whole, steps=plan["steps"]), self._runs_after(rate, seed)
        name = f"rate {rate:g} seed {seed}" if len(self._rates) > 1 else f"seed {seed}"
        callback = self._dev_scores(folder).callback(
            finetune.eval_steps or plan["steps_per_epoch"], at_start=finetune.keep_better
        )
        scoring = scoring_of(self.stage, self.packed, self.settings)
        pacer = pacer_of_run(self.stage, folder, runs_left=runs_after + 1, most_steps=whole.steps, scoring=scoring)
        state = run_stage_phase(
            phase,
            folder,
            self.stage,
            self.settings,
            label=f"finetune {name}",
            callback=callback,
            pacer=pacer,
            steps_after=plan["steps"] * runs_after,
        )
        return {"seed": seed, "learning_rate": rate, "flops": flops_of(phase, state["tokens"]), **state}

    def _runs_after(self, rate: float, seed: int) -> int:
        runs = current_processes().own(self._runs)
        return len(runs) - 1 - runs.index((rate, seed))

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
        """Return `seed-N`, which later stages read; of several learning rates `rate-R/seed-N` until one is selected."""
        final = self.stage.partial / f"seed-{seed}"
        if rate is None or len(self._rates) == 1 or (rate == self.stage.plan.get("learning_rate") and final.exists()):
            return final
        return self.stage.partial / f"rate-{rate}" / final.name

    def _select(self, best: float) -> None:
        """Move the folders of the best learning rate to `seed-N`, and delete the weights of the others.

        The plan stores the choice first, so a killed stage continues with the same choice.
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


def _over_budget(share: Budget, allowed: int, steps: int, runs: int) -> str:
    """Return the message for a budget of less than an epoch."""
    return (
        f"finetune: the budget ({share}) allows each fine-tuning {allowed:,} steps; the minimum is an epoch:"
        f" {runs:,} x {steps:,} steps"
    )
