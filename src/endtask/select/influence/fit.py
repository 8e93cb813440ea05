"""Fit the scoring models: masked LM and the task together, on one fold each, through the one training loop."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from endtask.errors import InputError
from endtask.files.atomic import remove_folder, write_json
from endtask.files.links import link_or_copy
from endtask.files.selection_table import write_selection
from endtask.gradients.layers import choose_weights
from endtask.models.flops import training_flops
from endtask.models.network import Network
from endtask.models.place import Place
from endtask.models.weights import save_weights
from endtask.objectives.by_kind import task_objective
from endtask.objectives.masking import Masking
from endtask.objectives.stream import TextStream
from endtask.objectives.task_base import TaskObjective
from endtask.settings import BatchSize, Settings
from endtask.task import Task
from endtask.text.pack import pack, tokenizer_for
from endtask.text.packed import PackedTexts
from endtask.text.tokenizer import save_tokenizer
from endtask.train.checkpoint import CHECKPOINT
from endtask.train.device import choose_place, move
from endtask.train.joint import INTERNAL, masking_of
from endtask.train.loop import Phase
from endtask.train.objective_kinds import FOLDERS
from endtask.train.phase_run import Memory, Pause, run_phase
from endtask.train.plan import parameters_of
from endtask.train.pretrain import pretrain_phase
from endtask.train.start import network_for

TOKENIZER, PACKED = "tokenizer", "pack"
_LEARNED, _IS_PACKED, _READS_ALONG, _FITTED = "learned.json", "packed.json", "candidates.json", "fitted.json"


@dataclass(frozen=True)
class Fold:
    """A fold in its folder; its scoring model learns from the task's train rows and judges by its dev rows."""

    task: Task
    settings: Settings
    folder: Path

    @property
    def packed(self) -> Path:
        """Where the fold's tokens lie."""
        return self.folder / PACKED

    @property
    def targets(self) -> PackedTexts:
        """The tokens of the rows whose loss is to fall."""
        return PackedTexts(self.packed / "dev")

    @property
    def masking(self) -> Masking:
        """How tokens are hidden, in fitting and in scoring."""
        return masking_of(self.packed, self.settings)

    @property
    def place(self) -> Place:
        """Where the model is fitted and scores."""
        return choose_place(self.settings)

    def kept_weights(self) -> list[Path]:
        """Those that score once the model is fitted: a moment without a finite loss has left none."""
        return [path for path in self.weights() if path.exists()]

    def weights(self) -> list[Path]:
        """The files of the weights along the training, the last step's last."""
        count = self.settings.select.influence.checkpoints
        return [self.folder / f"weights-{number}.safetensors" for number in range(1, count + 1)]

    def network(self) -> Network:
        """A network for such weights, with its first ones."""
        return move(network_for(self.task, self.packed, self.settings), self.settings, self.place)

    def answers(self, network: Network) -> TaskObjective:
        """What the targets ask."""
        stream = TextStream("targets", self.targets, network, batch_size=BatchSize.parse("32"), seed=0)
        return task_objective(self.task, "targets", stream, split="dev")

    def phase(self) -> Phase:
        """The training of the scoring model."""
        own = self.settings.select.influence
        phase = pretrain_phase(self.task, self.packed, self.settings)
        batches = phase.objectives[INTERNAL].stream.plan.batches_per_epoch  # type: ignore[attr-defined]
        steps = own.epochs * batches * (1 + own.rho1)
        if own.checkpoints > steps:
            message = f"{own.checkpoints} checkpoints of a training of {steps} steps"
            raise InputError(message, key="select.influence.checkpoints", hint=f"at most {steps}, or raise epochs")
        every = math.ceil(steps / own.checkpoints)
        return replace(phase, steps=every * own.checkpoints)  # so that the last of the checkpoints is the last step


def refuse_unknown_layers(network: Network, layers: tuple[str, ...]) -> None:
    """Before anything is trained; complaints name the setting."""
    try:
        choose_weights(network, layers)
    except InputError as error:
        raise InputError(str(error).replace("'layers'", "'select.influence.layers'")) from None


def prepare_folds(task: Task, parts: list[Task], retrieved: Path, settings: Settings, folder: Path) -> list[Fold]:
    """Learn or load the tokenizer, and tokenise each fold's rows; what a killed run left whole is not done again."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / _LEARNED).exists():
        tokenizer = tokenizer_for(task, retrieved, settings)
        save_tokenizer(tokenizer, folder / TOKENIZER)
        write_json(folder / _LEARNED, {"vocabulary": len(tokenizer)})
    given = settings.tokenizer.model_copy(update={"path": str(folder / TOKENIZER)})
    with_tokenizer = settings.model_copy(update={"tokenizer": given})
    folds = [Fold(part, with_tokenizer, folder / f"fold-{number}") for number, part in enumerate(parts)]
    for fold in folds:
        if not (fold.folder / _IS_PACKED).exists():
            fold.folder.mkdir(exist_ok=True)
            write_selection(fold.folder / "none.parquet", [])
            counts = pack(fold.task, fold.folder / "none.parquet", with_tokenizer, fold.packed)
            write_json(fold.folder / _IS_PACKED, counts)
    return folds


def read_candidates(fold: Fold, candidates: PackedTexts) -> None:
    """Have the scoring model read the candidates along, if it is to: they are the external text of its stage 1."""
    if not fold.settings.select.influence.rho1 or (fold.folder / _READS_ALONG).exists():
        return
    external = fold.packed / FOLDERS["selection"]
    remove_folder(external)
    external.mkdir()
    for path in sorted(candidates.folder.iterdir()):
        link_or_copy(path, external / path.name)
    write_json(fold.folder / _READS_ALONG, {"texts": len(candidates)})


def fit(fold: Fold, *, label: str, on_checkpoint: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Train a fold's scoring model and leave its weights in its folder; returns counts for the manifest."""
    if (fold.folder / _FITTED).exists():
        done: dict[str, Any] = json.loads((fold.folder / _FITTED).read_text(encoding="utf-8"))
        return done
    files, phase = fold.weights(), fold.phase()
    every = phase.steps // len(files)

    def keep_weights(step: int, memory: Memory) -> dict[str, float]:
        save_weights(files[step // every - 1], phase.network)
        return {}

    memory = run_phase(
        phase,
        fold.folder,
        label=label,
        pause=Pause(every, keep_weights),
        on_checkpoint=on_checkpoint,
        max_skipped_steps=fold.settings.max_skipped_steps,
    )
    counts = {
        **memory,
        "weights": len(fold.kept_weights()),
        "flops": training_flops(parameters_of(phase), memory["tokens"]),
    }
    write_json(fold.folder / _FITTED, counts)
    (fold.folder / CHECKPOINT).unlink(missing_ok=True)
    return counts
