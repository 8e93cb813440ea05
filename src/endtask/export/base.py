"""The contract of an exporter, and the export of a run by name.

An exporter is one file in this folder (or a plug-in) that registers itself under the name that `--to` takes:

    @exporters.register("onnx")
    class Onnx(FolderExporter):
        def write(self, run, folder): ...
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from endtask.config import Settings, load_settings
from endtask.errors import InputError
from endtask.export.model_card import CardKind, model_card
from endtask.io.atomic import atomic_folder, write_json, write_text
from endtask.io.extras import require
from endtask.io.machine import describe_machine
from endtask.io.parsing import read_json
from endtask.io.run_layout import MODEL_FACTS, NETWORK, RESULTS, SETTINGS_FILE
from endtask.io.stage_files import check_stage
from endtask.io.stage_folder import versions
from endtask.registry import Registry
from endtask.reporting.results import stored_task
from endtask.reporting.run_folder import RunFolder
from endtask.task import Task

RECORD = "export.json"
"""In an exported folder: what was exported, from which run, and what was measured."""
EXPORTS = "exports"
"""In a run's folder: the exports without `--output`, each in a folder of its exporter's name."""

Facts = dict[str, Any]


@dataclass(frozen=True)
class ExportRequest:
    """What a user wants to export, and where to."""

    source: Path
    """The folder of a run; for the hub also an exported folder."""
    output: Path | None = None
    repository: str | None = None
    public: bool = False


@dataclass(frozen=True)
class Exported:
    """What an export wrote or sent, and lines about it for people."""

    target: str
    facts: Facts
    lines: tuple[str, ...]


class Exporter:
    """Base class of all exporters."""

    name: ClassVar[str]
    """Set by the registry."""
    packages: ClassVar[tuple[str, ...]] = ()
    """The packages that it needs beyond those that endtask always has."""
    extra: ClassVar[str] = ""
    """The extra that installs them."""
    repository_type: ClassVar[str] = "model"
    """What the hub calls a repository of what it writes."""

    def export(self, request: ExportRequest) -> Exported:
        """Export, or raise `InputError` before anything is written or sent."""
        raise NotImplementedError

    def lines(self, facts: Facts) -> Iterator[str]:
        """Yield lines for people about what was measured."""
        return iter(())


exporters: Registry[Exporter] = Registry("exporter", "endtask.export")


def export(run: str | Path, to: str, **options: Any) -> Exported:
    """Export a run; `to` names the exporter, `options` are those of `ExportRequest`."""
    exporter = exporters.get(to)()
    if exporter.packages:
        require(*exporter.packages, extra=exporter.extra, purpose=f"--to {to}")
    return exporter.export(ExportRequest(Path(run), **options))


class TrainedRun:
    """A finished run as exporters read it."""

    def __init__(self, folder: Path, *, needs: str = "model") -> None:
        self.record = RunFolder(folder)
        self.path = folder
        if needs not in self.record.manifests or not (folder / SETTINGS_FILE).exists():
            raise InputError(f"the stage {needs} has not finished", path=folder, hint=f"endtask run {folder}")
        check_stage(folder / needs, digests_up_to=math.inf)

    @property
    def model(self) -> Path:
        """The folder of the saved network."""
        folder = self.path / "model"
        return folder / NETWORK if (folder / NETWORK).is_dir() else folder

    @cached_property
    def settings(self) -> Settings:
        """The settings of the run."""
        return load_settings(self.path / SETTINGS_FILE, given={"output_dir": str(self.path)})

    @cached_property
    def task(self) -> Task:
        """The labelled data as the run read it."""
        task = stored_task(self.record)
        if task is None:
            raise InputError("the labelled data is missing", path=self.path / "read")
        return task

    def card(self, kind: CardKind) -> str:
        """Return the model card of an export."""
        from transformers import AutoConfig

        from endtask.encoders.heads import markers_of

        results = read_json(self.record.file("evaluate", RESULTS))
        facts = self.model / MODEL_FACTS
        config = AutoConfig.from_pretrained(str(self.model), local_files_only=True)
        return model_card(
            self.settings,
            results,
            self.record.counts("model")["seed"],
            tuple(config.id2label.values()),
            task_type=self.task.type,
            facts=read_json(facts) if facts.exists() else {},
            reads_markers=not self.task.task_type.per_token and bool(markers_of(config)),
            run=self.record,
            kind=kind,
        )


class FolderExporter(Exporter):
    """Base class of exporters that write one folder, which appears when it is complete."""

    needs: ClassVar[str] = "model"
    """The stage that must have finished."""

    def write(self, run: TrainedRun, folder: Path) -> Facts:
        """Write all files into an empty folder; returns what was measured."""
        raise NotImplementedError

    def export(self, request: ExportRequest) -> Exported:
        if request.repository is not None or request.public:
            raise InputError("--repo and --public are for --to hub", hint=f"leave them out for --to {self.name}")
        run = TrainedRun(request.source, needs=self.needs)
        target = request.output or request.source / EXPORTS / self.name
        self._check_target(target)
        with atomic_folder(target) as folder:
            facts = self.write(run, folder)
            write_json(folder / RECORD, self._record(run, facts))
        return Exported(str(target), facts, tuple(self.lines(facts)))

    def _check_target(self, target: Path) -> None:
        """Raise for a folder with files of others; an older export of the same kind is replaced."""
        if target.is_symlink() or (target.exists() and not target.is_dir()):
            raise InputError("exists and is not a folder", path=target, hint="choose another --output")
        if target.is_dir() and any(target.iterdir()) and not (target / RECORD).exists():
            hint = "choose another --output"
            raise InputError("the folder holds other files and was left as it is", path=target, hint=hint)

    def _record(self, run: TrainedRun, facts: Facts) -> Facts:
        return {
            "exporter": self.name,
            "run": run.path.resolve().name,
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": versions(),
            "machine": describe_machine(),
            **facts,
        }


def write_card(run: TrainedRun, folder: Path, kind: CardKind) -> None:
    """Write the card of an export."""
    write_text(folder / "README.md", run.card(kind))
