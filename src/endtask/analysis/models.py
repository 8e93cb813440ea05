"""The models that an analysis compares: those of runs, before and after fine-tuning, and checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from endtask.analysis.reading import TextReader
from endtask.api.stored_run import StoredRun
from endtask.config import ModelSettings
from endtask.encoders.checkpoint import check_tokenizer, load_network, open_checkpoint
from endtask.encoders.checkpoint_files import checkpoint_fingerprint
from endtask.encoders.weights import load_weights
from endtask.errors import InputError
from endtask.io.digests import file_digest, fingerprint
from endtask.io.run_layout import BEST_WEIGHTS, SETTINGS_FILE
from endtask.io.stage_files import checked
from endtask.reporting.run_folder import RunFolder
from endtask.tokenization.tokenizer import load_tokenizer
from endtask.training.initial_network import network_for
from endtask.training.pretrain import WEIGHTS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

ALSO = "--also"
BEFORE, PRETRAINED, FINETUNED = "before fine-tuning", "pre-trained", "fine-tuned"


@dataclass(frozen=True)
class AnalysedModel:
    """A model by its name, a fingerprint of its weights and tokenizer, and how it is loaded."""

    name: str
    fingerprint: str
    load: Callable[[], TextReader]


def models_of_run(folder: Path, prefix: str = "") -> list[AnalysedModel]:
    """Return the encoder of a run before fine-tuning and that of its saved seed, as far as they exist."""
    run = StoredRun(folder)
    files = {f"{prefix}{name}": path for name, path in _weights(run).items()}
    models = [_model_of_run(run, name, path) for name, path in files.items()]
    settings = run.settings
    if settings.skip_pretraining and settings.model.path is not None:
        return [_initial_model(run, prefix + BEFORE), *models]
    return models


def named_models(path: str) -> list[AnalysedModel]:
    """Return the models of another run, or a checkpoint: a folder, `package:NAME` or `hf:NAME`."""
    folder = Path(path)
    if (folder / SETTINGS_FILE).exists():
        models = models_of_run(folder, f"{path}: ")
        if not models:
            raise InputError("no trained weights in this run", path=path, key=ALSO)
        return models
    try:
        return [_checkpoint(path)]
    except InputError as error:  # it names the setting, which is the flag here
        raise InputError(error.message, path=error.path, key=ALSO, hint=error.hint) from None


def _weights(run: StoredRun) -> dict[str, Path]:
    """Return the files of weights after pre-training and after fine-tuning of the saved seed."""
    found, finetuned = {}, run.weights
    pretrained = run.folder / "pretrain" / WEIGHTS
    if pretrained.exists() and not run.settings.skip_pretraining:
        found[PRETRAINED] = pretrained
    if finetuned and not run.settings.skip_finetuning:
        saved = RunFolder(run.folder).counts("model").get("seed")
        seed = saved if saved in finetuned else min(finetuned)
        found[FINETUNED] = run.folder / "finetune" / f"seed-{seed}" / BEST_WEIGHTS
    return found


def _model_of_run(run: StoredRun, name: str, weights: Path) -> AnalysedModel:
    def load() -> TextReader:
        network = network_for(run.task, run.folder / "pack", run.settings)
        load_weights(checked(weights, digests_up_to=math.inf), network)
        return TextReader.of(network, _tokenizer(run), run.settings.finetune.max_length)

    return AnalysedModel(name, fingerprint(file_digest(weights), _tokenizer_digest(run)), load)


def _initial_model(run: StoredRun, name: str) -> AnalysedModel:
    def load() -> TextReader:
        network = network_for(run.task, run.folder / "pack", run.settings)
        return TextReader.of(network, _tokenizer(run), run.settings.finetune.max_length)

    return AnalysedModel(
        name, fingerprint(checkpoint_fingerprint(run.settings.model.path), _tokenizer_digest(run)), load
    )


def _tokenizer(run: StoredRun) -> PreTrainedTokenizerFast:
    return load_tokenizer(checked(run.folder / "pack" / "tokenizer"))


def _tokenizer_digest(run: StoredRun) -> str:
    return file_digest(run.folder / "pack" / "tokenizer" / "tokenizer.json")


def _checkpoint(path: str) -> AnalysedModel:
    checkpoint, tokenizer = open_checkpoint(path), load_tokenizer(path, key="model.path")
    check_tokenizer(checkpoint, tokenizer, key="model.path")

    def load() -> TextReader:
        settings, pad = ModelSettings(), tokenizer.pad_token_id
        assert isinstance(pad, int)
        network = load_network(checkpoint, settings, pad_id=pad, labels=("no", "yes"), seed=0)
        return TextReader.of(network, tokenizer, checkpoint.max_length)

    return AnalysedModel(path, fingerprint(checkpoint_fingerprint(path)), load)
