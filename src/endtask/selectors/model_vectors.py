"""Vectors of texts by an encoder, in this process or by the machines of a cluster."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from endtask.encoders.unit_vectors import unit_vectors
from endtask.errors import InputError
from endtask.executors.base import Executor, Job, Report
from endtask.io.atomic import atomic_file
from endtask.io.selection_table import count_groups, read_group
from endtask.progress import Advance
from endtask.selectors.base import RunContext

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from endtask.encoders.checkpoint import Checkpoint

KEY = "select.embedding"
_TOKENS = 256
"""The most tokens of a text; later ones hardly change its mean vector, and sentence encoders train on no more."""
_TEXTS_AT_ONCE = 32

Vectors = NDArray[np.float32]
Text = tuple[str, str | None]


class ModelVectors:
    """Mean vectors of an encoder (a folder, `package:NAME` or `hf:NAME`) with its own tokenizer, without dropout."""

    def __init__(self, path: str, device: str = "auto") -> None:
        import torch

        from endtask.config import ModelSettings
        from endtask.encoders.checkpoint import load_network

        best = "cuda" if torch.cuda.is_available() else "cpu"
        self._device = torch.device(best if device == "auto" else device)
        with _errors_name_setting():
            checkpoint, self._tokenizer = open_encoder(path)
            settings = ModelSettings(dropout=0.0)
            # The vectors come from the encoder alone, so the random weights of the heads do not matter.
            network = load_network(
                checkpoint, settings, pad_id=self._tokenizer.pad_token_id, labels=("no", "yes"), seed=0
            )
        self._network = network.to(self._device).eval()
        self._longest = min(checkpoint.max_length, _TOKENS)
        self.dimensions = int(network.config.hidden_size)

    def encode(self, texts: Sequence[Text]) -> Vectors:
        """Return a vector for each text or pair, in order."""
        import torch

        from endtask.encoders.batch import lay_out
        from endtask.encoders.heads import pool
        from endtask.tokenization.packed_texts import pack_examples

        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        if not len(texts):
            return vectors
        with TemporaryDirectory() as folder, torch.inference_mode():
            packed = pack_examples(texts, self._tokenizer, self._longest, Path(folder))
            layout = self._network.layout(int(packed.lengths.max()))
            by_length = np.argsort(packed.lengths, kind="stable")
            for start in range(0, len(texts), _TEXTS_AT_ONCE):
                positions = by_length[start : start + _TEXTS_AT_ONCE]
                batch = lay_out(packed, positions, layout).to(self._device)
                vectors[positions] = pool(self._network(batch), batch, "mean").float().cpu().numpy()
        return vectors


def open_encoder(path: str) -> tuple[Checkpoint, PreTrainedTokenizerFast]:
    """Return the checkpoint and its tokenizer; raise `InputError` if they do not fit together."""
    from endtask.encoders.checkpoint import check_tokenizer, open_checkpoint
    from endtask.tokenization.tokenizer import load_tokenizer

    with _errors_name_setting():
        checkpoint = open_checkpoint(path)
        tokenizer = load_tokenizer(path, key=KEY)
        check_tokenizer(checkpoint, tokenizer, key=KEY)
    return checkpoint, tokenizer


@contextmanager
def _errors_name_setting() -> Iterator[None]:
    """Name `select.embedding` in errors about checkpoints, which otherwise name `model.path`."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace("'model.path'", repr(KEY))) from None


def encode_batch(model: ModelVectors, batch: Any) -> Vectors:
    """Return vectors of length 1 of the texts of a batch."""
    return unit_vectors(model.encode([(text, None) for text in batch.column(0).to_pylist()]))


def encode_on_cluster(embedding: str, run: RunContext, cluster: Executor, advance: Advance) -> Iterator[Vectors]:
    """Yield the vectors of each row group; finished groups of an interrupted call are not encoded again."""
    assert run.folder is not None
    folder = run.folder.absolute() / "vectors"
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{group}.npy" for group in range(count_groups(run.table))]
    common = {"embedding": embedding, "device": run.device, "table": str(run.table.absolute())}
    jobs: list[Job] = [
        {**common, "group": group, "into": str(path)} for group, path in enumerate(paths) if not path.exists()
    ]
    cluster.run(__name__, jobs, lambda texts: advance(texts), model=True)
    for path in paths:
        yield np.load(path)
    shutil.rmtree(folder)


def handle(job: Job, report: Report) -> None:
    """Encode the texts of a row group in an actor, which holds the model."""
    model = _model(job["embedding"], job["device"])
    blocks = [encode_batch(model, batch) for batch in read_group(Path(job["table"]), job["group"], ["text"])]
    vectors = np.concatenate(blocks)
    with atomic_file(Path(job["into"])) as aside, open(aside, "wb") as file:
        np.save(file, vectors)
    report(texts=len(vectors))


@lru_cache(maxsize=1)
def _model(embedding: str, device: str) -> ModelVectors:
    return ModelVectors(embedding, device)
