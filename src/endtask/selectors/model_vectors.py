"""Vectors of texts from a given encoder: the mean over its last layer's tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from endtask.errors import InputError
from endtask.selectors.vector_files import KEY, Vectors

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from endtask.encoders.checkpoint import Checkpoint

_TOKENS = 256
"""Of each text; what follows hardly turns its mean vector, and sentence encoders are trained on no more."""
_TEXTS_AT_ONCE = 32

Text = tuple[str, str | None]


class ModelVectors:
    """An encoder in a folder, of `package:NAME` or of `hf:NAME`, with its own tokenizer; fixed weights, no dropout."""

    def __init__(self, path: str, device: str = "auto") -> None:
        import torch

        from endtask.config import ModelSettings
        from endtask.encoders.checkpoint import load_network

        best = "cuda" if torch.cuda.is_available() else "cpu"
        self._device = torch.device(best if device == "auto" else device)
        with _about_the_embedding():
            checkpoint, self._tokenizer = open_encoder(path)
            settings = ModelSettings(dropout=0.0)
            # No head is used; their random weights have no part in the vectors.
            network = load_network(
                checkpoint, settings, pad_id=self._tokenizer.pad_token_id, labels=("no", "yes"), seed=0
            )
        self._network = network.to(self._device).eval()
        self._longest = min(checkpoint.max_length, _TOKENS)
        self.dimensions = int(network.config.hidden_size)

    def of(self, texts: Sequence[Text]) -> Vectors:
        """One vector for each text or pair, in order."""
        import torch

        from endtask.encoders.batch import lay_out
        from endtask.encoders.network import pool
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
    """Read the encoder's configuration and its tokenizer, or say what is wrong with them."""
    from endtask.encoders.checkpoint import check_tokenizer, open_checkpoint
    from endtask.tokenization.tokenizer import load_tokenizer

    with _about_the_embedding():
        checkpoint = open_checkpoint(path)
        tokenizer = load_tokenizer(path, key=KEY)
        check_tokenizer(checkpoint, tokenizer, key=KEY)
    return checkpoint, tokenizer


@contextmanager
def _about_the_embedding() -> Iterator[None]:
    """Complaints about checkpoints name the setting that is usually behind them; here it is another."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace("'model.path'", repr(KEY))) from None
