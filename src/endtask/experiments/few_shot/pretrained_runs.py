"""Runs whose pre-training is finished: what few-shot trials start from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from endtask.config import Settings, load_settings
from endtask.errors import InputError
from endtask.io.run_layout import SETTINGS_FILE
from endtask.io.stage_folder import read_manifest
from endtask.pipeline.run import Run
from endtask.task import Task


@dataclass(frozen=True)
class PretrainedRun:
    """The weights and tokenizer of a run, and its task; `digest` changes with anything that made them."""

    name: str
    folder: Path
    settings: Settings
    task: Task
    digest: str

    @property
    def weights(self) -> Path:
        """The pre-trained weights: the last ones, or the best on dev if the run fine-tunes those."""
        from endtask.training.pretrain import BEST_PRETRAINED, WEIGHTS

        return self.folder / "pretrain" / (BEST_PRETRAINED if self.settings.finetune.start_from == "best" else WEIGHTS)

    @property
    def tokenizer(self) -> Path:
        """The folder of the tokenizer."""
        return self.folder / "pack" / "tokenizer"

    @property
    def saw_labels(self) -> bool:
        """Whether pre-training used the labels of train."""
        used = self.settings.used_objectives.values()
        return not self.settings.skip_pretraining and any(objective.sees_labels for objective in used)


def open_pretrained(folder: Path, name: str | None = None) -> PretrainedRun:
    """Return the run in a folder, under the folder's name unless another is given; raise if it is not complete."""
    if not (folder / SETTINGS_FILE).is_file():
        raise InputError("no run here", path=folder, hint="endtask run --output FOLDER --until pretrain makes one")
    manifests = {stage: read_manifest(folder / stage) for stage in ("read", "pack", "pretrain")}
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
        raise InputError(f"few-shot learning is for tasks with one class for each text or word, not {run.task.type}")
    settings = run.bundled.local_settings(run.settings).model_copy(update={"compile": "graphs"})  # trials are short
    found = PretrainedRun(name or folder.resolve().name, folder, settings, run.task, pretrain["fingerprint"])
    if not found.weights.is_file():
        raise InputError("the pre-trained weights are not here", path=found.weights)
    return found


def open_all(folders: Mapping[str, Path]) -> list[PretrainedRun]:
    """Return the runs, by name, of one task."""
    found = [open_pretrained(folder, name) for name, folder in folders.items()]
    for run in found:
        if run.task.fingerprint != found[0].task.fingerprint:
            raise InputError(f"another task than that of {found[0].folder}", path=run.folder)
    return found
