"""The embedding that a setting names: whether it is there, and what identifies it."""

from __future__ import annotations

from pathlib import Path

from endtask.corpus.sources import HUB_PREFIX
from endtask.errors import InputError
from endtask.io.digests import file_digest, fingerprint
from endtask.selectors.vector_files import KEY, check_files_exist, files_of, is_vector_file

_TOKENIZER_SUFFIXES = (".json", ".txt", ".model")


def check_embedding_exists(embedding: str | None) -> None:
    """Refuse an embedding that is not named or not there; of a model, configuration and tokenizer are read."""
    if embedding is None:
        hint = "a model's folder, package:NAME, hf:NAME, or a file of vectors"
        raise InputError("neighbors needs an embedding", key=KEY, hint=hint)
    if is_vector_file(embedding):
        check_files_exist(Path(embedding))
        return
    from endtask.selectors.model_vectors import open_encoder

    open_encoder(embedding)


def embedding_fingerprint(embedding: str) -> str:
    """A hash of the files of vectors, or what identifies the model and its tokenizer."""
    if is_vector_file(embedding):
        return fingerprint([file_digest(file) for file in files_of(Path(embedding))])
    from endtask.encoders.checkpoint_files import checkpoint_fingerprint, config_file

    model = checkpoint_fingerprint(embedding)
    if embedding.startswith(HUB_PREFIX):
        return model  # the revision, which the tokenizer shares
    files = sorted(file for file in config_file(embedding).parent.iterdir() if file.suffix in _TOKENIZER_SUFFIXES)
    return fingerprint(model, [(file.name, file_digest(file)) for file in files])
