"""Fine-tuning: fine-tuning from pre-training's weights for every rate and seed, best weights by dev; or none of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from endtask.config import Budget, Settings
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.flops import training_flops
from endtask.encoders.network import Network
from endtask.encoders.weights import load_weights
from endtask.evaluation.evaluate import mean_and_spread
from endtask.evaluation.task_metrics import measure_of
from endtask.io.atomic import write_json
from endtask.io.run_layout import BEST_WEIGHTS, SEED_RESULT
from endtask.io.stage_folder import StageFolder
from endtask.objectives.task_base import TaskObjective
from endtask.progress import say
from endtask.task import Task
from endtask.training.averaging import put_in_mean
from endtask.training.budget_plan import StepCost, measure_cost, parameters_of, split_budget, steps_for, with_scoring
from endtask.training.checkpoint import CHECKPOINT
from endtask.training.dev_eval import DevScores
from endtask.training.device import choose_device_context, move
from endtask.training.finetune_phase import batches_per_epoch, epoch_of_end_task, finetune_phase, tokens_to_read
from endtask.training.initial_network import network_for
from endtask.training.loggers import Trackers, open_trackers
from endtask.training.metrics_file import MetricsFile
from endtask.training.phase import Phase
from endtask.training.phase_runner import TrainState, nothing_yet, run_phase
from endtask.training.pretrain import BEST_PRETRAINED, WEIGHTS

Result = dict[str, Any]
_COSTS = ("tokens", "padded_tokens", "flops", "matmul_flops")


def _over_budget(share: Budget, allowed: int, steps: int, trainings: int, cost: StepCost) -> str:
    """One line for who waits: the least that is done is more than was asked for."""
    together = "" if cost.seconds is None else f", together about {steps * cost.seconds * trainings:,.0f} s"
    return (
        f"finetune: steps that the budget ({share}) allows each fine-tuning: {allowed:,}; an epoch is the least,"
        f" {trainings:,} x {steps:,} steps{together}"
    )


def finetune(task: Task, packed: Path, pretrained: Path, settings: Settings, stage: StageFolder) -> dict[str, Any]:
    """Fine-tune every rate and seed in the stage's folder; finished ones are kept when a killed stage goes on.

    One network serves them all: its weights are read anew each time, so nothing is compiled twice.
    """
    stage.start()
    context = choose_device_context(settings)
    network = move(network_for(task, packed, settings), settings, context, tokens=tokens_to_read(packed, settings))
    start = pretrained / (BEST_PRETRAINED if settings.finetune.start_from == "best" else WEIGHTS)
    finetuning = _Finetuning(network, task, packed, start, settings, context, stage)
    return finetuning.finetune() if not settings.skip_finetuning else finetuning.take_pretrained()


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
        """Train what is left; the rate with the best mean dev score is the one that counts."""
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
            self._keep(best)
        return {
            "learning_rate": best,
            "rates": [{"learning_rate": rate, **score} for rate, score in scores.items()],
            **self._counts([result for found in results.values() for result in found]),
            **self._seeds_from_pretraining(results[best]),
            "seeds": results[best],
        }

    def _seeds_from_pretraining(self, results: Sequence[Result]) -> dict[str, int]:
        """For how many seeds pre-training's model was kept, where it may be."""
        reuses_pretrained = self.settings.finetune.keep_better
        return {"from_pretraining": sum(result["best_step"] == 0 for result in results)} if reuses_pretrained else {}

    def take_pretrained(self) -> dict[str, Any]:
        """Score pre-training's weights with the head trained there, under the first seed's name."""
        (seed,) = self._seeds
        folder = self._folder(None, seed)
        folder.mkdir(exist_ok=True)
        self.stage.set_plan(steps=0, steps_per_epoch=1)
        load_weights(self.start, self.network)
        memory = nothing_yet()
        row = self._score(folder, 0, memory)
        MetricsFile(folder / "metrics.jsonl", start=-1, every=1).write({"step": 0, **row})
        result = {"seed": seed, "flops": 0.0, **memory}
        write_json(folder / SEED_RESULT, result)
        return {**self._counts([result]), "seeds": [result]}

    def _plan(self) -> dict[str, Any]:
        """Steps of each run: those asked for, or fewer if the budget's share says so.

        The end task's epoch is the least, however large the tasks are that take turns with it: a budget holds as it
        would for the end task alone. Dev is scored after every epoch of all tasks, or at the end of less than one.
        """
        phase = self._phase(self._rates[0], self._seeds[0])
        tasks = {name: one for name, one in phase.objectives.items() if isinstance(one, TaskObjective)}
        epoch = batches_per_epoch(tasks)
        plan: dict[str, Any] = {"steps": phase.steps, "steps_per_epoch": epoch}
        _, budget = split_budget(self.settings)
        if budget is None:
            return plan
        trainings = len(self._rates) * len(self._seeds) * self.settings.finetune.members
        share = budget.share(1 / trainings)
        cost = measure_cost(phase, share)
        least = epoch_of_end_task(phase)
        allowed = self._steps_in(share, cost, epoch)
        plan["steps"] = min(phase.steps, max(least, allowed))
        if plan["steps"] > allowed:
            say(_over_budget(share, allowed, plan["steps"], trainings, cost))
        return {**plan, "budget_per_seed": str(share), "cost_per_step": vars(cost)}

    def _steps_in(self, budget: Budget, cost: StepCost, epoch: int) -> int:
        """How many steps fit with the scores of dev on the way, of which there is one at least."""
        every = self.settings.finetune.eval_steps or epoch
        fit = steps_for(budget, with_scoring(cost, self.packed / "dev", every=every))
        return fit if fit >= every else steps_for(budget, with_scoring(cost, self.packed / "dev", every=fit))

    def _phase(self, rate: float, seed: int, member: int = 0) -> Phase:
        return finetune_phase(
            self.network,
            self.task,
            self.packed,
            self.settings,
            self.context,
            seed=seed,
            learning_rate=rate,
            member=member,
        )

    def _result(self, rate: float, seed: int) -> Result:
        """What a rate and a seed scored and cost, trained now unless it was before."""
        folder = self._folder(rate, seed)
        if self.settings.finetune.members == 1:
            return self._stored_or_trained(folder, partial(self._train, rate, seed, folder))
        members = [folder / f"member-{number}" for number in range(self.settings.finetune.members)]
        result = self._stored_or_trained(folder, partial(self._train_members, rate, seed, folder, members))
        for member in members:
            (member / BEST_WEIGHTS).unlink(missing_ok=True)
        return result

    def _stored_or_trained(self, folder: Path, make: Callable[[], Result]) -> Result:
        path = folder / SEED_RESULT
        if not path.exists():
            write_json(path, make())
            (folder / CHECKPOINT).unlink(missing_ok=True)
        result: Result = json.loads(path.read_text(encoding="utf-8"))
        return result

    def _train_members(self, rate: float, seed: int, folder: Path, members: Sequence[Path]) -> Result:
        """The mean of several trainings, scored as one model."""
        results = [
            self._stored_or_trained(member, partial(self._train, rate, seed, member, number))
            for number, member in enumerate(members)
        ]
        put_in_mean(self.network, [member / BEST_WEIGHTS for member in members])
        memory = nothing_yet()
        row = self._score(folder, max(result["steps"] for result in results), memory)
        MetricsFile(folder / "metrics.jsonl", start=-1, every=1).write({"step": memory["steps"], **row})
        costs = {name: sum(result[name] for result in results) for name in _COSTS}
        of_members = [result["dev"] for result in results]
        return {"seed": seed, "learning_rate": rate, **memory, **costs, "dev_of_members": of_members}

    def _train(self, rate: float, seed: int, folder: Path, member: int = 0) -> Result:
        plan = self.stage.plan
        load_weights(self.start, self.network)
        phase = replace(self._phase(rate, seed, member), steps=plan["steps"])
        name = f"rate {rate:g} seed {seed}" if len(self._rates) > 1 else f"seed {seed}"
        name += f" member {member}" if self.settings.finetune.members > 1 else ""
        with self._trackers(folder, name) as trackers:
            memory = run_phase(
                phase,
                folder,
                label=f"finetune {name}",
                callback=self._dev_scores(folder).callback(
                    self.settings.finetune.eval_steps or plan["steps_per_epoch"],
                    at_start=self.settings.finetune.keep_better,
                ),
                on_checkpoint=self.stage.keep_time,
                trackers=trackers,
            )
        flops = training_flops(parameters_of(phase), memory["tokens"])
        return {"seed": seed, "learning_rate": rate, "flops": flops, **memory}

    def _trackers(self, folder: Path, name: str) -> Trackers:
        run = f"{Path(self.settings.output_dir).name} fine-tuning {name}"
        return open_trackers(self.settings.report_to, folder, run, self.settings.model_dump(mode="json"))

    def _score(self, folder: Path, step: int, memory: TrainState) -> dict[str, float]:
        """Score the network as it is, and keep it."""
        scores = self._dev_scores(folder)
        row = scores.score(step, memory)
        scores.keep(memory)
        return row

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
        """`seed-N`, where every reader looks; of several rates `rate-R/seed-N` until the best one is known."""
        final = self.stage.partial / f"seed-{seed}"
        if rate is None or len(self._rates) == 1 or (rate == self.stage.plan.get("learning_rate") and final.exists()):
            return final
        return self.stage.partial / f"rate-{rate}" / final.name

    def _keep(self, best: float) -> None:
        """Move the best rate's folders to their final place, and drop the weights of the others.

        A kill in between does no harm: the choice is on record first, and the same results lead to the same choice.
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
