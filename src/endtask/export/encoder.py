"""`--to encoder`: the pre-trained encoder, before fine-tuning, as a Hugging Face folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import ClassVar

from endtask.encoders.checkpoint import open_checkpoint
from endtask.encoders.huggingface import masked_lm_of, save_stock
from endtask.encoders.weights import load_tensors
from endtask.errors import InputError
from endtask.export.base import Facts, FolderExporter, TrainedRun, exporters, write_card
from endtask.export.model_card import CardKind

WEIGHTS = "weights.safetensors"
_USE = """from transformers import AutoModel, AutoTokenizer
folder = "path/to/this/folder"
tokenizer, encoder = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
vectors = encoder(**tokenizer(["some text"], return_tensors="pt")).last_hidden_state"""
_NOTES = (
    "This folder has the encoder as pre-training left it, with its masked-LM head and without the task's: the scores "
    "on this card are those of the model that was fine-tuned from it.",
)


@exporters.register("encoder")
class Encoder(FolderExporter):
    """The weights after pre-training, with the masked-LM head; `model.path` of another run can start from them."""

    needs: ClassVar[str] = "model"

    def write(self, run: TrainedRun, folder: Path) -> Facts:
        weights = run.path / "pretrain" / WEIGHTS
        if run.settings.skip_pretraining or not weights.exists():
            raise InputError("this run did not pre-train", path=run.path, hint="--to onnx exports the fine-tuned model")
        checkpoint = open_checkpoint(str(run.model))
        config = checkpoint.config
        config.problem_type, config.num_labels = None, 2  # the labels of the task are of no use here
        model = masked_lm_of(checkpoint.architecture, config, load_tensors(weights)[0])
        save_stock(model, folder)
        copy_tokenizer(run.path / "pack" / "tokenizer", folder)
        write_card(run, folder, CardKind(usage=_USE, pipeline="fill-mask", notes=_NOTES, with_times=True))
        return {"parameters": sum(weight.numel() for weight in model.parameters())}


def copy_tokenizer(source: Path, folder: Path) -> None:
    """Copy the files of a tokenizer."""
    for file in source.iterdir():
        if file.name.startswith(("tokenizer", "special_tokens", "vocab", "merges")):
            shutil.copyfile(file, folder / file.name)
