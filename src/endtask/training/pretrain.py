"""Pre-training: objectives on a shared encoder; by default masked LM on the selection and the task (TLM)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from endtask.config import Settings
from endtask.config.data_usage import data_usage
from endtask.encoders.flops import training_flops
from endtask.encoders.weights import save_weights
from endtask.io.stage_folder import StageFolder
from endtask.objectives.context import pretrain_head
from endtask.processes import current_processes
from endtask.progress import warn
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts
from endtask.training.budget_plan import parameters_of, split_budget, without_seconds_used
from endtask.training.checkpoint import remove_checkpoints
from endtask.training.dev_eval import DevScores
from endtask.training.device import check_arithmetic
from endtask.training.distributed import distribution, is_sharded, shard, start_together
from endtask.training.finetune_phase import tokens_to_read
from endtask.training.initial_network import network_for
from endtask.training.pacing import Pacer
from endtask.training.phase import Phase
from endtask.training.phase_runner import Callback, TrainState, initial_state, run_stage_phase
from endtask.training.pretrain_phase import (
    Subphase,
    pretrain_objectives,
    pretrain_phase,
    split_phase,
    weighting_context,
)
from endtask.training.pretrain_plan import extra_cost, finetuning_share, plan_steps
from endtask.training.reselect import count_reselection, reselection_of
from endtask.weighting.base import ExtraCost
from endtask.weighting.folds import groups_in

WEIGHTS = "weights.safetensors"
BEST_PRETRAINED = "best.safetensors"


def pretrain(task: Task, packed: Path, settings: Settings, stage: StageFolder) -> dict[str, Any]:
    """Run pre-training in the stage's folder, and return counts for the manifest."""
    return _PretrainRunner(task, packed, settings, stage, start_together(stage)).pretrain()


@dataclass(frozen=True)
class _PretrainRunner:
    task: Task
    packed: Path
    settings: Settings
    stage: StageFolder
    folder: Path

    def pretrain(self) -> dict[str, Any]:
        """Train from the last checkpoint, if there is one, to the planned end, and return the counts."""
        if self.settings.skip_pretraining:
            return self._save_initial_weights()
        phase, processes = pretrain_phase(self.task, self.packed, self.settings), current_processes()
        phase = replace(phase, context=replace(phase.context, processes=processes))
        if self._finetuning_share(phase) == 1.0:
            return {**self._save_initial_weights(), "finetuning_share": 1.0}
        if is_sharded(self.settings, processes):
            shard(phase.network)
        if "steps" not in self.stage.plan:
            self._plan(phase)
        if processes.is_first:
            check_arithmetic(self.stage, phase.context)
        phase = self._planned(phase)
        subphases = split_phase(phase, self.settings)
        state = self._train(phase, subphases)
        save_weights(self.folder / WEIGHTS, phase.network, writes=processes.is_first)
        counts = self._counts(phase, state)
        # At the very end: a stage that fails before resumes from its checkpoints.
        for subphase in subphases if processes.is_first else ():
            remove_checkpoints(self.folder / subphase.name)
        return counts

    def _save_initial_weights(self) -> dict[str, Any]:
        network = network_for(self.task, self.packed, self.settings)
        save_weights(self.folder / WEIGHTS, network, writes=current_processes().is_first)
        parameters = sum(weight.numel() for weight in network.parameters())
        counts = {"steps": 0, "parameters": parameters, "device": "none", "flops": 0.0, **initial_state()}
        return {**counts, "uses": self._data_usage(None)}

    def _finetuning_share(self, phase: Phase) -> float | None:
        """Return the share of the budget for fine-tuning, decided once for the stage; 1 leaves no steps here."""
        processes = phase.context.processes
        if "finetuning_share" not in self.stage.plan:
            share = processes.shared(finetuning_share(phase, self.task, self.packed, self.settings))
            none = {"steps": 0} if share == 1.0 else {}
            self.stage.set_plan(finetuning_share=share, **none)
        decided: float | None = self.stage.plan["finetuning_share"]
        return decided

    def _plan(self, phase: Phase) -> None:
        """Decide the number of steps, which several processes share."""
        budget, _ = split_budget(self.settings, self.stage.plan["finetuning_share"])
        left = without_seconds_used(budget, self.stage)
        steps, cost = plan_steps(phase, self.task, self.packed, self.settings, left)
        plan = {"steps": steps, "budget": str(budget), "cost_per_step": vars(cost)}
        self.stage.set_plan(**phase.context.processes.shared(plan))

    def _planned(self, phase: Phase) -> Phase:
        """Return the phase with the planned steps, and with what depends on them: folds, weighting, re-selection."""
        task, packed, settings, steps = self.task, self.packed, self.settings, self.stage.plan["steps"]
        weighting = settings.pretrain.weighting.part
        if weighting.folds(task, settings.pretrain_seed) is not None:  # the length of a fold depends on the steps
            phase = replace(phase, objectives=pretrain_objectives(task, packed, phase.network, settings, steps=steps))
        for warning in weighting.warnings(task, settings):
            warn(warning)
        rule = weighting.build(weighting_context(phase, task, packed, settings), steps)
        phase = replace(phase, steps=steps, weighting=rule)
        return replace(phase, refresh=reselection_of(phase, task, packed, settings))

    def _train(self, phase: Phase, subphases: Sequence[Subphase]) -> TrainState:
        """Train the subphases one after the other with the same network."""
        pacer, states = self._pacer(phase, subphases), []
        for position, subphase in enumerate(subphases, start=1):
            later = sum(other.phase.steps for other in subphases[position:])
            state = run_stage_phase(
                subphase.phase,
                self.folder / subphase.name,
                self.stage,
                self.settings,
                label=subphase.label,
                callback=self._dev_callback(subphase.phase),
                pacer=pacer,
                steps_after=later + self._finetuning_in_steps(phase),
            )
            states.append(state)
        return total_state(states)

    def _pacer(self, phase: Phase, subphases: Sequence[Subphase]) -> Pacer | None:
        """Return what keeps a time budget; None where schedules of other things depend on the number of steps."""
        budget, _ = split_budget(self.settings, self.stage.plan.get("finetuning_share"))
        depends = self.settings.pretrain.weighting.part.folds(self.task, self.settings.pretrain_seed) is not None
        if budget.seconds is None or depends or phase.refresh is not None or len(subphases) > 1:
            return None
        return Pacer(self.stage, budget.seconds)

    def _finetuning_in_steps(self, phase: Phase) -> float:
        """Return how many steps of pre-training take as long as all fine-tunings, for the time left of the run."""
        if self.settings.skip_finetuning:
            return 0.0
        _, budget = split_budget(self.settings, self.stage.plan.get("finetuning_share"))
        if budget is None:
            cost = self.stage.plan.get("cost_per_step")
            return tokens_to_read(self.packed, self.settings) / max(1.0, float(cost["tokens"])) if cost else 0.0
        share = budget.amount / self.settings.budget.amount
        return phase.steps * share / max(1e-3, 1 - share)

    def _dev_callback(self, phase: Phase) -> Callback | None:
        """Return a callback that scores the dev split by pre-training's task head, or None without `eval_steps`."""
        eval_steps, used = self.settings.pretrain.eval_steps, self.settings.used_objectives
        if eval_steps is None or not any(used[name].sees_labels for name in phase.objectives):
            return None
        scores = DevScores(
            phase.network,
            self.task,
            self.packed,
            self.settings,
            phase.context,
            self.folder / BEST_PRETRAINED,
            patience=self.settings.pretrain.early_stopping_patience,
            head=pretrain_head(self.settings),
        )
        return scores.callback(eval_steps)

    def _counts(self, phase: Phase, state: TrainState) -> dict[str, Any]:
        """Return the counts of the manifest, those of learned weights and of re-selection included."""
        parameters, trained_tokens, plan = parameters_of(phase), state["tokens"], self.stage.plan
        trained_tokens += _count_extra(state, extra_cost(phase, self.task, self.packed, self.settings))
        trained_tokens += count_reselection(state, phase.network)
        return {
            "planned_steps": plan.get("replans", [(0, phase.steps)])[-1][1],
            "finetuning_share": plan.get("finetuning_share"),
            "parameters": parameters,
            "device": str(phase.context.device),
            "attention": phase.network.backend,
            **distribution(phase.network, phase.context.processes),
            "flops": training_flops(parameters, trained_tokens),
            "uses": self._data_usage(phase),
            **state,
            **self._selection_passes(state, phase),
        }

    def _selection_passes(self, state: TrainState, phase: Phase) -> dict[str, float]:
        """Return how often the selection was read, by tokens; empty where no objective reads it."""
        used, folder = self.settings.used_objectives, self.packed / "selection"
        names = [name for name in phase.objectives if used[name].reads == "selection"]
        if not names or not folder.exists():
            return {}
        tokens = sum(state["objectives"].get(name, {}).get("tokens", 0) for name in names)
        return {"selection_passes": tokens / max(1.0, float(PackedTexts(folder).lengths.sum()))}

    def _data_usage(self, phase: Phase | None) -> list[dict[str, Any]]:
        """Return which objective reads which split, without objectives that have no text."""
        absent = self.settings.used_objectives.keys() - (phase.objectives.keys() if phase is not None else ())
        return [asdict(use) for use in data_usage(self.settings, groups=groups_in(self.task.train), absent=absent)]


def _count_extra(state: TrainState, extra: ExtraCost | None) -> float:
    """Add the weighting's updates to the counts; return the tokens of training with the same FLOPs."""
    if extra is None:
        return 0.0
    updates: int = -(-state["steps"] // extra.every)
    tokens, flops = round(updates * extra.tokens), updates * extra.matmul_flops
    state["tokens"] += tokens
    state["padded_tokens"] += tokens
    state["matmul_flops"] += flops
    state["objectives"][extra.name] = {"steps": updates, "tokens": tokens, "matmul_flops": flops}
    return updates * extra.trained_tokens


_SUMMED = frozenset({"steps", "tokens", "padded_tokens", "matmul_flops", "skipped_steps", "rate_halvings"})


def total_state(states: Sequence[TrainState]) -> TrainState:
    """Return the summed counts of all subphases, with the dev scores of the last one that has any."""
    total = {name: value for state in states for name, value in state.items() if name != "stop"}
    for name in _SUMMED & total.keys():
        total[name] = sum(state.get(name, 0) for state in states)
    total["objectives"] = {name: counts for state in states for name, counts in state["objectives"].items()}
    return total
