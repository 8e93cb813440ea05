"""The first of two rounds: masked LM on the best-ranked candidates, so that scoring models know the text they score.

The weights are trained once, on what `best_rank` would select; the scoring models of all folds start from them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from endtask.config import PretrainSettings, Settings
from endtask.encoders.flops import training_flops
from endtask.encoders.weights import save_weights
from endtask.io.atomic import write_json
from endtask.io.selection_table import SelectionStatistics
from endtask.selectors.base import NO_COMMON_WORD, RunContext, by_bm25_rank, write_rows
from endtask.selectors.influence.config import influence_config
from endtask.selectors.influence.scoring_model import Fold
from endtask.tokenization.packing import pack
from endtask.training.budget_plan import parameters_of
from endtask.training.checkpoint import remove_checkpoints
from endtask.training.phase import Phase
from endtask.training.phase_runner import run_phase
from endtask.training.pretrain_phase import pretrain_phase

_FOLDER, _SELECTED, _DONE, _IS_PACKED = "first-round", "best-ranked.parquet", "done.json", "packed.json"


@dataclass(frozen=True)
class FirstRound:
    """The first round of a selection; `fold` gives the model, the tokenizer and the device."""

    context: RunContext
    statistics: SelectionStatistics
    fold: Fold

    def train(self, *, on_checkpoint: Callable[[], None]) -> dict[str, Any]:
        """Train, save the weights where the folds find them, and return the cost; a resumed run reuses them."""
        if not (self.folder / _DONE).exists():
            phase = self.phase()
            state = run_phase(phase, self.folder, label="first round", on_checkpoint=on_checkpoint)
            save_weights(self.fold.first_round, phase.network)
            flops = training_flops(parameters_of(phase), state["tokens"])
            write_json(self.folder / _DONE, {"steps": state["steps"], "tokens": state["tokens"], "flops": flops})
        remove_checkpoints(self.folder)
        done = json.loads((self.folder / _DONE).read_text(encoding="utf-8"))
        return {"first_round": done}

    def phase(self) -> Phase:
        """Return the training phase."""
        self._pack()
        settings = self._settings()
        steps = influence_config(settings).first_round_steps
        return replace(pretrain_phase(self.fold.task, self.folder / "pack", settings), steps=steps)

    @property
    def folder(self) -> Path:
        """The scratch folder of the round."""
        return self.fold.folder.parent / _FOLDER

    def _settings(self) -> Settings:
        """Return the settings of the fold, with the batches, rates and masks of the run's own pre-training."""
        assert self.context.run is not None
        own, of_fold = self.context.run.pretrain, self.fold.settings.pretrain
        train = PretrainSettings(
            seed=of_fold.seed,
            learning_rate=own.learning_rate,
            weight_decay=own.weight_decay,
            warmup_steps=own.warmup_steps,
            lr_scheduler_type=own.lr_scheduler_type,
            batch_size=own.batch_size,
            gradient_accumulation_steps=own.gradient_accumulation_steps,
            max_length=of_fold.max_length,
            mask_probability=own.mask_probability,
            weighting={"name": "interleave", "rho1": "inf"},
            dropout=own.dropout,
        )
        return self.fold.settings.model_copy(update={"pretrain": train})

    def _pack(self) -> None:
        """Tokenize what `best_rank` would select; a resumed run reuses the files."""
        if (self.folder / _IS_PACKED).exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        sizes = self.statistics.bytes
        selected = self.context.fill_budget(by_bm25_rank(self.statistics), sizes, cause=NO_COMMON_WORD)
        write_rows(self.context.table, selected, self.folder / _SELECTED)
        settings = self._settings()
        counts = pack(self.fold.task, self.folder / _SELECTED, settings, self.folder / "pack")
        write_json(self.folder / _IS_PACKED, counts)
