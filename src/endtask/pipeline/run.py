"""Run the stages in order, skip finished stages, and detect changed settings and data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from endtask.config import Settings, dump_yaml, load_settings
from endtask.config.automatic import starting_point
from endtask.corpus import Corpus
from endtask.encoders.checkpoint_files import checkpoint_fingerprint
from endtask.errors import InputError, a_few, did_you_mean
from endtask.io.atomic import disk_errors_named, remove_leftovers, write_text
from endtask.io.processes import make_output_folder, run_lock
from endtask.io.run_layout import RUN_LOG, SETTINGS_FILE, STAGES
from endtask.io.stage_files import check_stage, read_manifest
from endtask.io.stage_folder import StageFolder, left_out
from endtask.pipeline.followers import Followers, follow
from endtask.pipeline.inputs import (
    EXTERNAL_INPUTS,
    BundledInputs,
    aligned_fingerprint,
    find_bundled_inputs,
    input_path,
    reads_corpus,
    selection_digest,
    tokenizer_fingerprint,
)
from endtask.pipeline.preflight import preflight
from endtask.pipeline.redo import Redo
from endtask.pipeline.stage import Counts, RunData, stage_fingerprint, values_read
from endtask.pipeline.stages import STAGES as ALL_STAGES
from endtask.pipeline.storage import Storage
from endtask.processes import current_processes, join_processes
from endtask.progress import RunLog, recorded, say, stage_of_run, warn
from endtask.reporting.costs import stage_summary
from endtask.reporting.format import duration
from endtask.task import Task
from endtask.task.task import read_all


class CheckedStages(Mapping[str, Path]):
    """The folders of the stages by name; checks every file of a stage that another process made, at its first use."""

    def __init__(self, stages: Mapping[str, StageFolder]) -> None:
        self._folders = {name: stage.final for name, stage in stages.items()}
        self._checked: set[str] = set()

    def __getitem__(self, name: str) -> Path:
        if name not in self._checked:
            check_stage(self._folders[name], digests_up_to=math.inf)
            self._checked.add(name)
        return self._folders[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._folders)

    def __len__(self) -> int:
        return len(self._folders)

    def add(self, name: str) -> None:
        """Note that this process has just made a stage."""
        self._checked.add(name)


@dataclass(frozen=True)
class RunResult:
    """The folder of a run and the counts of its finished stages."""

    folder: Path
    stages: dict[str, Counts]

    @property
    def score(self) -> float | None:
        """The mean test score over the fine-tuning seeds; None before evaluation."""
        return self.stages["evaluate"]["mean"] if "evaluate" in self.stages else None

    def __repr__(self) -> str:
        score = "" if self.score is None else f", score={self.score:.3f}"
        return f"RunResult({str(self.folder)!r}{score}, stages={list(self.stages)})"


def run(
    settings: Settings | Mapping[str, Any] | str | Path,
    *,
    until: str | None = None,
    start: str | None = None,
) -> RunResult:
    """Run the stages that are not finished and write the report.

    `settings` are typed settings, a plain mapping (such as resolved settings from JSON; it may name a `preset`), a
    settings file or the folder of a run. `until` is the last stage to run. `start` redoes a stage and all later ones;
    an old run folder accepts changed settings only with it. Their old results move to the folder `previous`.

    If torchrun started several processes of the caller's script, they train together.
    """
    join_processes()
    if isinstance(settings, str | Path):
        settings = _load(Path(settings))
    elif isinstance(settings, Mapping):
        preset = settings.get("preset")
        settings = load_settings(preset=preset, given={key: settings[key] for key in settings if key != "preset"})
    return Run(settings).execute(until=until, start=start)


def _load(path: Path) -> Settings:
    if not path.is_dir():
        return load_settings(path)
    # The folder may have been moved or copied after its settings were written.
    return load_settings(path / SETTINGS_FILE, given={"output_dir": str(path)})


class Run:
    """A run folder and its settings."""

    def __init__(self, settings: Settings) -> None:
        if not settings.task.path:
            raise InputError("no task", key="task.path", hint="--task path/to/task")
        if not settings.output_dir:
            raise InputError("no folder for the run", key="output_dir", hint="--output runs/my-task")
        self.settings = settings
        self.folder = Path(settings.output_dir)
        self.bundled = find_bundled_inputs(self.folder)
        self._followers = Followers()

    @cached_property
    def task(self) -> Task:
        """The labelled data, from a bundle's copy or from its files."""
        task = self.bundled.task(self.settings)
        if task is not None:
            return task
        try:
            return read_all(self.settings)
        except InputError as error:
            raise self.bundled.explain_other_task(self.settings, error) from None

    @cached_property
    def corpus(self) -> Corpus | None:
        """The unlabelled text; None if the run reads none, or if it stayed on another machine."""
        if not self.settings.corpus.sources or not reads_corpus(self.settings):
            return None
        if self.bundled.why_missing("corpus", self.settings):
            return None
        corpus = Corpus.read(self.settings.corpus)
        for line in corpus.unread_lines():
            warn(line, level="note")
        next(corpus.documents())  # raises for an empty or unreadable corpus before anything is written
        return corpus

    @property
    def data(self) -> RunData:
        """The data that the stages read."""
        return RunData(self.task, self.corpus, self.local_settings, self.settings)

    @cached_property
    def local_settings(self) -> Settings:
        """The settings with paths of this machine and with the entity markers of the task."""
        from endtask.tokenization.packing import with_detected_markers

        return with_detected_markers(self.bundled.local_settings(self.settings), self.task)

    def check(self, *, trains: bool = True) -> None:
        """Raise the error that a later stage would raise, without reading the corpus or writing anything."""
        has_selection = self.bundled.find("selection", self.settings) is not None
        has_corpus = not self.bundled.why_missing("corpus", self.settings)
        preflight(self.task, self.local_settings, has_selection=has_selection, has_corpus=has_corpus, trains=trains)

    def execute(self, *, until: str | None = None, start: str | None = None) -> RunResult:
        """Run the stages up to `until`; skip finished stages before `start`."""
        if not current_processes().is_first:
            follow(self.folder, RunData(self.task, None, self.local_settings, self.settings), ALL_STAGES)
            return self.result()
        names = _stages_between(until, start)
        with recorded() as log, self._followers.waiting():
            self.check(trains=uses_device(names, self.settings))
            stages = self.stage_folders(start)
            make_output_folder(self.folder, SETTINGS_FILE)  # the first file that a run writes
            hint = "finished stages are safe; once this is fixed, the same command resumes the run"
            with run_lock(self.folder), disk_errors_named(self.folder, hint):
                self._run_stages(names, stages, start, log)
        return self.result()

    def _say_start(self, names: Sequence[str]) -> None:
        """Print what the encoder starts from, and the entity markers that were found."""
        if not uses_device(names, self.settings):
            return
        say(starting_point(self.settings))
        markers = self.local_settings.tokenizer.markers
        if self.settings.tokenizer.entity_markers == "auto" and markers:
            say(f"the head reads the entity markers found in the texts: {' '.join(markers)}")

    def adopt_settings(self, *, start: str | None = None) -> None:
        """Write these settings to the folder for a later resume, and move stages from `start` on to `previous`."""
        stages = self.stage_folders(start)
        make_output_folder(self.folder, SETTINGS_FILE)
        with run_lock(self.folder):
            for stage in stages.values():
                stage.recover()
            self._check_unchanged(stages, start)
            Redo(self.folder, stages, start).move_away()
            write_text(self.folder / SETTINGS_FILE, dump_yaml(self.settings))

    def _run_stages(
        self, names: tuple[str, ...], stages: dict[str, StageFolder], start: str | None, log: RunLog
    ) -> None:
        from endtask.reporting.page import write_report

        for stage in stages.values():
            stage.recover()
        self._check_unchanged(stages, start)
        storage = Storage(self.settings.cluster.storage, stages)
        fetched = storage.fetchable(names)
        self._check_inputs_present(_pending(names, stages, start, fetched), stages)
        remove_leftovers(self.folder)
        finished, redo = CheckedStages(stages), Redo(self.folder, stages, start)
        with redo.restored_on_input_error():
            redo.move_away()
            write_text(self.folder / SETTINGS_FILE, dump_yaml(self.settings))
            log.open(self.folder / RUN_LOG)
            storage.begin(self.folder / SETTINGS_FILE)
            self._say_start([name for name in names if name not in fetched and not stages[name].is_finished()])
            for name in names:
                if stages[name].is_finished():
                    check_stage(stages[name].final)
                    say(f"{name}: finished before, skipped")
                elif name in fetched:
                    storage.fetch(stages[name])
                    finished.add(name)
                else:
                    self._run_stage(stages[name], finished)
                storage.upload(stages[name])
        redo.finish()
        storage.put(write_report(self.folder))

    def result(self) -> RunResult:
        """Return the counts of the finished stages."""
        manifests = {name: read_manifest(self.folder / name) for name in STAGES}
        return RunResult(self.folder, {name: manifest["counts"] for name, manifest in manifests.items() if manifest})

    def stage_folders(self, start: str | None = None) -> dict[str, StageFolder]:
        """Return every stage's folder with its fingerprint, which covers its settings and inputs.

        The stages from `start` on are redone, so that damage in them is no error.
        """
        digests = {name: self.input_digest(name) for name in EXTERNAL_INPUTS}
        folders: dict[str, StageFolder] = {}
        previous_stage: dict[str, str] = {}
        for name, stage in ALL_STAGES.items():
            inputs = {**{key: digests[key] for key in stage.inputs_read(self.settings)}, **previous_stage}
            digest = stage_fingerprint(stage, self.settings, inputs)
            folders[name] = StageFolder(self.folder, name, digest, values_read(stage, self.settings), inputs)
            folders[name].is_redone = start is not None and STAGES.index(name) >= STAGES.index(start)
            previous_stage = {name: digest}
        return folders

    def input_digest(self, name: str) -> str:
        """Return the digest of an external input, from the bundle's record or computed from its files."""
        settings = self.settings
        bundled = self.bundled.find(name, settings)
        if bundled is not None:
            return bundled.fingerprint
        digests: dict[str, Callable[[], str]] = {
            "task": lambda: self.task.combined_fingerprint,
            "corpus": lambda: self.corpus.fingerprint() if self.corpus else "none",
            "selection": lambda: selection_digest(settings),
            "aligned": lambda: aligned_fingerprint(settings),
            "tokenizer": lambda: tokenizer_fingerprint(settings),
            "checkpoint": lambda: checkpoint_fingerprint(settings.model.path),
        }
        return digests[name]()

    def first_clash(self) -> str | None:
        """Return the first stage in the folder that was made with other settings or data; None without such a stage."""
        return next((name for name, stage in self.stage_folders().items() if stage.clashes()), None)

    def plan(self, *, until: str | None = None, start: str | None = None) -> list[tuple[str, str]]:
        """Return what `execute` would do with each stage; raise the errors that would stop it at the start."""
        names = _stages_between(until, start)
        self.check(trains=uses_device(names, self.settings))
        stages = self.stage_folders(start)
        redone = () if start is None else STAGES[STAGES.index(start) :]
        fetched = Storage(self.settings.cluster.storage, stages).fetchable(names)
        plan = {name: self._next_action(stages[name], redo=name in redone) for name in names}
        plan.update(dict.fromkeys(fetched, "is fetched from cluster.storage"))
        blocked = first_blocked(_pending(names, stages, start, fetched), stages, self.bundled, self.settings)
        if blocked is not None:
            plan[blocked[0]] = blocked[1]
        return list(plan.items())

    def _next_action(self, stage: StageFolder, *, redo: bool) -> str:
        if stage.can_resume():
            return "resumes where it stopped"
        if redo:
            return "is redone" if stage.final.exists() else "to do"
        if stage.clashes():
            return f"made with other settings or data: {self._describe_changes(stage)}"
        return "finished" if stage.is_finished() else "to do"

    def _run_stage(self, stage: StageFolder, finished: CheckedStages) -> None:
        say(f"{stage.name}: started" if not stage.can_resume() else f"{stage.name}: resumes where it stopped")
        number, later = STAGES.index(stage.name) + 1, _seconds_later(stage.name, self.settings)
        shown, part = stage_of_run(stage.name, number, len(STAGES), later=later), ALL_STAGES[stage.name]
        with shown, self._followers.taking_part(part, stage):
            counts = part.run(self.data, stage, finished)
        seconds = stage.finish(counts)
        finished.add(stage.name)
        say(f"{stage.name}: {stage_summary(stage.name, counts)} ({duration(seconds)})")

    def _check_unchanged(self, stages: dict[str, StageFolder], start: str | None) -> None:
        """Raise `InputError` for a stage that was made with other settings or data, unless `start` redoes it."""
        changed = [stage for stage in stages.values() if stage.clashes()]
        if not changed or (start is not None and STAGES.index(start) <= STAGES.index(changed[0].name)):
            return
        raise InputError(
            f"{self._describe_changes(changed[0])} since this run was made",
            path=self.folder,
            hint=f"redo with --from {changed[0].name}, or choose another --output; nothing was touched",
        )

    def _check_inputs_present(self, pending: Sequence[str], stages: dict[str, StageFolder]) -> None:
        """Raise `InputError` if a stage needs data that is not in the bundle."""
        blocked = first_blocked(pending, stages, self.bundled, self.settings)
        if blocked is not None:
            hint = "do it there and make another bundle; nothing was touched"
            raise InputError(f"the stage {blocked[0]} {blocked[1]}", path=self.folder, hint=hint)

    def _describe_changes(self, stage: StageFolder) -> str:
        changes = stage.changes()
        if changes.get("corpus", ("", ""))[1] == "none" and self.settings.corpus.sources:
            return f"select.name is now {self.settings.select.name}, for which no corpus is searched,"
        if settings := stage.changed_settings():
            return f"settings changed: {a_few(settings, 4)}"
        files = [
            f"the files of the {name} ({input_path(self.settings, name)})"
            for name in EXTERNAL_INPUTS
            if name in changes
        ]
        return f"{' and '.join(files) or f'inputs of the stage {stage.name}'} changed"


def uses_device(names: Sequence[str], settings: Settings) -> bool:
    """Return whether a stage trains or runs a model; other stages may prepare data for another machine.

    >>> uses_device(["read", "select", "pack"], Settings()), uses_device(["pack", "pretrain"], Settings())
    (False, True)
    """
    selects_by_model = any(part.runs_model for part in settings.select.part.parts())
    return "pretrain" in names or (selects_by_model and "select" in names)


def _seconds_later(stage: str, settings: Settings) -> float | None:
    """Return the seconds that training takes after a stage under a time budget; 0 where the stage's bars know them."""
    is_before_training = STAGES.index(stage) < STAGES.index("pretrain")
    return settings.budget.seconds if is_before_training else 0.0


def _stages_between(until: str | None, start: str | None) -> tuple[str, ...]:
    """Return the stages up to `until`. Raise `InputError` for unknown names."""
    for name in (until, start):
        if name is not None and name not in STAGES:
            raise InputError(f"unknown stage {name!r}", hint=did_you_mean(name, STAGES))
    names = STAGES[: STAGES.index(until) + 1] if until else STAGES
    if start is not None and start not in names:
        raise InputError(f"the stage to start from, {start}, comes after the last stage, {until}")
    return names


def _pending(
    names: Sequence[str], stages: Mapping[str, StageFolder], start: str | None, fetched: Sequence[str]
) -> list[str]:
    """Return the stages that are not finished or that `start` redoes, without those that are fetched."""
    redone = () if start is None else STAGES[STAGES.index(start) :]
    return [name for name in names if name in redone or not (name in fetched or stages[name].is_finished())]


def first_blocked(
    pending: Sequence[str], folders: Mapping[str, StageFolder], bundled: BundledInputs, settings: Settings
) -> tuple[str, str] | None:
    """Return the first pending stage that cannot run on this machine, and the reason; None if all can run."""
    for name in pending:
        stage = ALL_STAGES[name]
        reasons = [bundled.why_missing(opened, settings) for opened in stage.inputs_opened(settings)]
        source = stage.reads_files_of
        if source is not None and source not in pending and left_out(folders[source].final):
            reasons.append(f"the files of the stage {source} stayed on the machine where the bundle was made")
        reason = next((reason for reason in reasons if reason), None)
        if reason is not None:
            return name, f"cannot be done here: {reason}"
    return None
