"""Plan, check, prepare and train the runs of a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from endtask.config import Settings
from endtask.config.overrides import with_values
from endtask.encoders.checkpoint_files import SMALL_PRETRAINED
from endtask.errors import InputError
from endtask.experiments.baselines import baseline_variants, untrained_baselines
from endtask.experiments.spec import Presets, Study, TableSpec, VariantSpec
from endtask.experiments.stage_reuse import check_unchanged, reuse_data, reuse_stages
from endtask.experiments.variants import (
    DEFAULT_VARIANT,
    VARIANTS,
    Trial,
    Variant,
    check_unique,
    known_name,
    listed_variants,
)
from endtask.io.run_layout import STAGES
from endtask.io.stage_files import MANIFEST, read_manifest
from endtask.io.stage_folder import StageFolder
from endtask.pipeline.run import Run, uses_device
from endtask.progress import say, warn
from endtask.reporting import page
from endtask.task import Task

LAST_PREPARED, _BEFORE_SELECTION = "pack", "retrieve"
TRAINING_STAGES = ("pretrain", "finetune")
_FINETUNE_SEEDS = "finetune.seeds"


@dataclass(frozen=True)
class Plan:
    """The variants of a comparison, its untrained baselines and tables, and the study.

    `study` has explicit values instead of defaults, which may differ on another machine.
    """

    settings: Settings
    study: Study
    variants: tuple[Variant, ...]
    untrained: tuple[str, ...]
    against: str
    tables: dict[str, TableSpec]
    presets: Presets = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Every row of the table: variants, then baselines from the simplest to the most expensive."""
        names = tuple(variant.name for variant in self.variants if not variant.is_baseline)
        return (*names, *self.untrained, *(variant.name for variant in self.variants if variant.is_baseline))

    def variant(self, name: str) -> Variant:
        """Return the variant with a name."""
        return next(variant for variant in self.variants if variant.name == name)


def make_plan(settings: Settings, study: Study, where: str = "study", presets: Presets | None = None) -> Plan:
    """Return the plan of a comparison in the folder `settings.output_dir`.

    `presets` has the same settings with other presets, for variants with a preset.
    """
    seeds = {"finetune.seeds": study.finetune_seeds} if study.finetune_seeds is not None else {}
    base = with_values(settings, seeds, where)
    presets = {name: with_values(preset, seeds, where) for name, preset in (presets or {}).items()}
    variants = listed_variants(base, study, where, presets)
    names = [variant.name for variant in variants]
    against = _against(study, names, where)
    reference = next(variant for variant in variants if variant.name == against)
    pretrain_seeds = study.seeds or (base.pretrain_seed,)
    baselines = baseline_variants(study, reference, pretrain_seeds, Path(settings.output_dir) / VARIANTS, where)
    untrained = untrained_baselines(study)
    baseline_names = [*untrained, *(baseline.name for baseline in baselines)]
    resolved = _resolved(study, baseline_names, pretrain_seeds, base, against)
    plan = Plan(base, resolved, (*variants, *baselines), untrained, against, {}, presets)
    check_unique(plan.names, where)
    return replace(plan, tables=_tables(study, plan, where) or {"": TableSpec(variants=plan.names, against=against)})


def _against(study: Study, names: Sequence[str], where: str) -> str:
    """Return the variant that the others are tested against: the first if `only` leaves out the study's."""
    if study.only is not None and study.against in study.variants and study.against not in names:
        warn(f"tested against {names[0]}, since {study.against} is left out", level="note")
        return names[0]
    return known_name(study.against or names[0], names, where, "against")


def _tables(study: Study, plan: Plan, where: str) -> dict[str, TableSpec]:
    """Return the study's tables with the variants of the plan, without tables whose reference is not in it."""
    tables = {}
    for name, table in study.tables.items():
        known = [*plan.names, *(study.variants if study.only is not None else ())]
        rows = tuple(row for row in table.variants if known_name(row, known, where, f"tables.{name}") in plan.names)
        against = table.against or (plan.against if plan.against in table.variants else table.variants[0])
        known_name(against, table.variants, where, f"tables.{name}.against")
        if against in rows and against not in plan.untrained:
            tables[name] = table.model_copy(update={"variants": rows, "against": against})
    return tables


def _resolved(
    study: Study, baselines: Iterable[str], seeds: tuple[int, ...], settings: Settings, against: str
) -> Study:
    overrides = study.baselines or {}
    changes: dict[str, Any] = {
        "variants": study.variants if study.variants or study.grid else {DEFAULT_VARIANT: VariantSpec()},
        "seeds": seeds,
        "finetune_seeds": settings.finetune.seeds,
        "baselines": {name: overrides.get(name, {}) for name in baselines},
        "against": against,
        "shared_tokenizer": None,  # it is in the settings now
    }
    if "checkpoint" in changes["baselines"]:
        changes["checkpoint"] = study.checkpoint or SMALL_PRETRAINED
    return study.model_copy(update=changes)


@dataclass
class TrialRuns:
    """The runs of all trials in an experiment's folder; equal stages run once and are reused.

    `sources` are other run folders whose stages may be reused. Without `reads_corpus` no stage can run, but finished
    trials can be scored on a machine without the corpus.
    """

    plan: Plan
    folder: Path
    sources: Sequence[Path] = ()
    reads_corpus: bool = True
    _first: dict[str, Run] = field(default_factory=dict)

    @property
    def trials(self) -> list[Trial]:
        """All trials; those of the reference variant, from which baselines are made, come first."""
        variants = sorted(self.plan.variants, key=lambda variant: variant.name != self.plan.against)
        return [trial for variant in variants for trial in variant.trials(self.folder)]

    @property
    def task(self) -> Task:
        """The labelled data with the auxiliary tasks of all variants: a scored row may be in train of any of them."""
        tasks = [self._first_run(variant).task for variant in self.plan.variants]
        auxiliary = {f"{name} {task.fingerprint}": task for main in tasks for name, task in main.auxiliary.items()}
        return replace(self._first_run(self.plan.variant(self.plan.against)).task, auxiliary=auxiliary)

    def check(self, last: str) -> None:
        """Raise errors of settings, data and scored rows that would stop a run, before anything is written.

        Another machine may run the stages after `last`.
        """
        names = STAGES[: STAGES.index(last) + 1]
        reference = self._first_run(self.plan.variant(self.plan.against))
        reference.check(trains=uses_device(names, reference.settings))
        reference.stage_folders()
        for variant in self.plan.variants:
            run = self._first_run(variant)
            try:
                run.check(trains=uses_device(names, run.settings))
                _ = run.corpus
            except InputError as error:
                raise type(error)(f"variant {variant.name!r}: {error}") from None
            if _scored_rows(run.task) != _scored_rows(reference.task):
                message = f"its dev or test rows are not those of {self.plan.against!r}"
                raise InputError(f"variant {variant.name!r}: {message}")

    def check_unchanged(self) -> None:
        """Raise `InputError` if data changed since the runs in the folder were made."""
        for trial in self.trials:
            if trial.folder.exists() and not self._has_other_finetune_seeds(trial):
                check_unchanged(self._run(trial))

    def check_same_task(self) -> None:
        """Raise `InputError` if the task changed since the runs in the folder were made, without reading the corpus."""
        for trial in self.trials:
            manifest = read_manifest(trial.folder / "read")
            if manifest and manifest["inputs"]["task"] != self._run(trial).input_digest("task"):
                hint = "its predictions cannot be scored on other rows; nothing was touched"
                raise InputError("the task changed since this run was made", path=trial.folder, hint=hint)

    def prepare(self, until: str, *, on_devices: bool = False) -> None:
        """Run the stages before training for all trials, so that errors appear early.

        Fine-tuning with other seeds moves to `previous` and is repeated. With devices, a selection by a model is left
        to its trial's worker, unless several trials share it.
        """
        last = min(until, LAST_PREPARED, key=STAGES.index)
        left = self._own_selections_by_models() if on_devices else frozenset()
        for trial in self.trials:
            if trial.folder.exists():
                self._run(trial).adopt_settings(start="finetune" if self._has_other_finetune_seeds(trial) else None)
            if trial.variant.tokenizer_from is not None and last != LAST_PREPARED:
                continue  # the fingerprints of its stages depend on a tokenizer that does not exist yet
            self.reuse(trial)
            end = _BEFORE_SELECTION if trial.key in left else last
            if not self.is_finished(trial, end):
                say(f"variant {trial.variant.name}: preparing up to {end}")
                self._run(trial).execute(until=end)

    def _own_selections_by_models(self) -> frozenset[str]:
        """Return the keys of trials that select by a model, each a selection of its own.

        None where a variant has another one's tokenizer: its stages have no fingerprints before that is learned.
        """
        if any(variant.tokenizer_from is not None for variant in self.plan.variants):
            return frozenset()
        by_models = [trial for trial in self.trials if uses_device(["select"], trial.settings)]
        selections = {trial.key: self.stages(trial)["select"].fingerprint for trial in by_models}
        times = Counter(selections.values())
        return frozenset(key for key, selection in selections.items() if times[selection] == 1)

    def train(self, trial: Trial, until: str) -> None:
        """Run or resume a trial in this process."""
        self.reuse(trial)
        if not self.is_finished(trial, until):
            self._run(trial).execute(until=until)

    def reuse(self, trial: Trial) -> None:
        """Give a trial every stage that another run finished with the same settings and data."""
        others = [other.folder for other in self.trials if other != trial]
        reuse_stages(self._run(trial), [*others, *self.sources])

    def write_missing_reports(self, until: str) -> None:
        """Write the reports of trials that a kill stopped between their last stage and their report.

        The report of a trial's preparation may be there already; it is older than the last stage.
        """
        for trial in self.trials:
            last = self.stages(trial)[until]
            if last.is_finished() and not _is_newer(trial.folder / page.REPORT, last.final / MANIFEST):
                page.write_report(trial.folder)

    def is_finished(self, trial: Trial, until: str) -> bool:
        """Return whether a stage of the trial, and so every stage before it, is finished."""
        return self.stages(trial)[until].is_finished()

    def stages(self, trial: Trial) -> dict[str, StageFolder]:
        """Return the stages of a trial with their fingerprints."""
        return self._run(trial).stage_folders()

    def _has_other_finetune_seeds(self, trial: Trial) -> bool:
        """Return whether the trial differs from its run folder only in the fine-tuning seeds."""
        clash = next((stage for stage in self.stages(trial).values() if stage.clashes()), None)
        return clash is not None and clash.name == "finetune" and set(clash.changes()) == {_FINETUNE_SEEDS}

    def _run(self, trial: Trial) -> Run:
        run = Run(trial.settings)
        reuse_data(self._first_run(trial.variant), run)
        return run

    def _first_run(self, variant: Variant) -> Run:
        """Return the variant's first run, whose data its other runs reuse."""
        if variant.name not in self._first:
            run = Run(variant.trials(self.folder)[0].settings)
            if not self.reads_corpus:
                run.corpus = None
            if variant.name != self.plan.against:
                reuse_data(self._first_run(self.plan.variant(self.plan.against)), run)
            self._first[variant.name] = run
        return self._first[variant.name]


def _is_newer(path: Path, other: Path) -> bool:
    return path.exists() and path.stat().st_mtime_ns >= other.stat().st_mtime_ns


def _scored_rows(task: Task) -> list[tuple[str, str, object]]:
    splits = (split for split in ("dev", "test") if split in task.splits)
    return [(split, example.id, example.label) for split in splits for example in task.splits[split]]
