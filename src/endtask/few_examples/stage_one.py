"""A run whose pre-training is finished: what few labels are added to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from endtask.config import Settings, load_settings
from endtask.errors import InputError
from endtask.io.run_layout import SETTINGS_FILE
from endtask.io.stage_folder import read_manifest
from endtask.pipeline.run import Run
from endtask.task import Task


@dataclass(frozen=True)
class StageOne:
    """The weights and the tokenizer of a run, and the task it is for; `mark` changes with anything that made them."""

    name: str
    folder: Path
    settings: Settings
    task: Task
    mark: str

    @property
    def weights(self) -> Path:
        """Pre-training's weights: the last, or the best on dev where the run fine-tunes those."""
        from endtask.training.pretrain import BEST_PRETRAINED, WEIGHTS

        return self.folder / "pretrain" / (BEST_PRETRAINED if self.settings.finetune.start_from == "best" else WEIGHTS)

    @property
    def tokenizer(self) -> Path:
        """The folder of the tokenizer."""
        return self.folder / "pack" / "tokenizer"

    @property
    def saw_labels(self) -> bool:
        """Whether pre-training learned from the labels of train."""
        used = self.settings.used_objectives.values()
        return not self.settings.skip_pretraining and any(one.sees_labels for one in used)


def open_stage_one(folder: Path) -> StageOne:
    """The run in a folder; one line says what is missing."""
    if not (folder / SETTINGS_FILE).is_file():
        raise InputError("no run here", path=folder, hint="endtask run --output FOLDER --until pretrain makes one")
    manifests = {name: read_manifest(folder / name) for name in ("read", "pack", "pretrain")}
    if any(manifest is None or manifest["status"] != "finished" for manifest in manifests.values()):
        raise InputError("pre-training is not finished", path=folder, hint=f"endtask run {folder} --until pretrain")
    run = Run(load_settings(folder / SETTINGS_FILE, given={"output_dir": str(folder)}))
    read, pretrain = manifests["read"], manifests["pretrain"]
    assert read is not None
    assert pretrain is not None
    if read["inputs"]["task"] != run.task.combined_fingerprint:
        raise InputError(
            f"the files of the task ({run.settings.task.path}) changed since this run was made", path=folder
        )
    if not run.task.task_type.one_label:
        raise InputError(f"few-example learning is for tasks with one class for each text or word, not {run.task.type}")
    settings = run.bundled.settings_here(run.settings).model_copy(update={"compile": "graphs"})  # each run is short
    found = StageOne(folder.resolve().name, folder, settings, run.task, pretrain["fingerprint"])
    if not found.weights.is_file():
        raise InputError("the weights of pre-training are not here", path=found.weights)
    return found


def open_all(folders: Sequence[Path]) -> list[StageOne]:
    """Runs of one task, under different names."""
    found = [open_stage_one(folder) for folder in folders]
    for number, one in enumerate(found):
        if one.task.fingerprint != found[0].task.fingerprint:
            raise InputError(f"another task than that of {found[0].folder}", path=one.folder)
        if one.name in [other.name for other in found[:number]]:
            raise InputError(f"two runs are called {one.name!r}", path=one.folder, hint="rename one of the folders")
    return found
