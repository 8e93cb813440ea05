"""The runs of a comparison: checked before anything is written, prepared once, then trained one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from endtask.compare.cell import Cell, CellRun
from endtask.compare.plan import Plan
from endtask.errors import InputError
from endtask.io.run_layout import STAGES
from endtask.io.stage_folder import StageFolder, read_manifest
from endtask.pipeline.reuse import reuse_stages, share_inputs
from endtask.pipeline.run import Run, uses_device
from endtask.progress import say
from endtask.task import Task

LAST_PREPARED = "pack"
_FINETUNE = "finetune"
_MAY_BE_REDONE = "finetune.seeds"


@dataclass
class Work:
    """The runs in a comparison's folder; what one of them did, or another run before, is done for all.

    Without `reads_corpus` finished runs can be judged where the corpus is not, and nothing can be done or compared.
    """

    plan: Plan
    folder: Path
    lenders: Sequence[Path] = ()
    reads_corpus: bool = True
    _first: dict[str, Run] = field(default_factory=dict)

    @property
    def runs(self) -> list[CellRun]:
        """Every run; those of the cell that baselines are made from come first."""
        cells = sorted(self.plan.cells, key=lambda cell: cell.name != self.plan.against)
        return [run for cell in cells for run in cell.runs(self.folder)]

    @property
    def task(self) -> Task:
        """The labelled data, with the auxiliary tasks of all cells: a row that decides may stand in train of any."""
        tasks = [self._first_of(cell).task for cell in self.plan.cells]
        auxiliary = {f"{name} {one.fingerprint}": one for task in tasks for name, one in task.auxiliary.items()}
        return replace(self._first_of(self.plan.cell(self.plan.against)).task, auxiliary=auxiliary)

    def check(self, last: str) -> None:
        """Meet, before anything is written, what would stop a run: its settings, its data, other rows to judge by.

        Stages after `last` are left to another machine.
        """
        names = STAGES[: STAGES.index(last) + 1]
        first = self._first_of(self.plan.cell(self.plan.against))
        first.check(trains=uses_device(names, first.settings))
        first.stage_folders()
        for cell in self.plan.cells:
            run = self._first_of(cell)
            try:
                run.check(trains=uses_device(names, run.settings))
                _ = run.corpus
            except InputError as error:
                raise type(error)(f"cell {cell.name!r}: {error}") from None
            if _validation_rows(run.task) != _validation_rows(first.task):
                raise InputError(f"cell {cell.name!r}: its dev or test rows are not those of {self.plan.against!r}")

    def refuse_changed(self) -> None:
        """Stop before touching anything where data changed since the runs in the folder were made."""
        for run in self.runs:
            clash = self._run(run).first_clash() if run.folder.exists() else None
            if clash is not None and not self._has_other_seeds(run):
                raise InputError(
                    f"what the stage {clash} reads changed since this run was made",
                    path=run.folder,
                    hint="choose another --output; nothing was touched",
                )

    def refuse_other_task(self) -> None:
        """Stop where the task changed since the runs in the folder were made; unlike the above without the corpus."""
        for run in self.runs:
            manifest = read_manifest(run.folder / "read")
            if manifest and manifest["inputs"]["task"] != self._run(run).input_digest("task"):
                hint = "what it answered cannot be judged by other rows; nothing was touched"
                raise InputError("the task changed since this run was made", path=run.folder, hint=hint)

    def prepare(self, until: str) -> None:
        """Do the stages before training for all runs: the same ones once, and mistakes are met early.

        What was fine-tuned with other seeds than are asked for now is set aside, to be done again.
        """
        last = min(until, LAST_PREPARED, key=STAGES.index)
        for run in self.runs:
            if run.folder.exists():
                self._run(run).follow_settings(start=_FINETUNE if self._has_other_seeds(run) else None)
            if run.cell.tokenizer_of is not None and last != LAST_PREPARED:
                continue  # its stages cannot be told apart before that tokenizer is there
            self.give(run)
            if not self.is_finished(run, last):
                say(f"cell {run.cell.name}: prepared up to {last}")
                self._run(run).go(until=last)

    def train(self, run: CellRun, until: str) -> None:
        """Do what is left of a run in this process."""
        self.give(run)
        if not self.is_finished(run, until):
            self._run(run).go(until=until)

    def give(self, run: CellRun) -> None:
        """Give a run every stage that another one did with the same settings and data."""
        others = [other.folder for other in self.runs if other != run]
        reuse_stages(self._run(run), [*others, *self.lenders])

    def is_finished(self, run: CellRun, until: str) -> bool:
        """Whether a stage of the run stands finished; those before it then do."""
        return self.stages(run)[until].is_finished()

    def _has_other_seeds(self, run: CellRun) -> bool:
        """Whether the run was fine-tuned with the same settings and data but other seeds; pre-training then stands."""
        stages = self.stages(run)
        clash = next((stage for stage in stages.values() if stage.clashes()), None)
        return clash is not None and clash.name == _FINETUNE and set(clash.changes()) == {_MAY_BE_REDONE}

    def stages(self, run: CellRun) -> dict[str, StageFolder]:
        """The stages of a run with their fingerprints."""
        return self._run(run).stage_folders()

    def _run(self, run: CellRun) -> Run:
        made = Run(run.settings)
        share_inputs(self._first_of(run.cell), made)
        return made

    def _first_of(self, cell: Cell) -> Run:
        """The cell's first run, which lends its data to the others."""
        if cell.name not in self._first:
            made = Run(cell.runs(self.folder)[0].settings)
            if not self.reads_corpus:
                made.corpus = None
            if cell.name != self.plan.against:
                share_inputs(self._first_of(self.plan.cell(self.plan.against)), made)
            self._first[cell.name] = made
        return self._first[cell.name]


def _validation_rows(task: Task) -> list[tuple[str, str, object]]:
    splits = (split for split in ("dev", "test") if split in task.splits)
    return [(split, example.id, example.label) for split in splits for example in task.splits[split]]
