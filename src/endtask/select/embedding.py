"""The embedding that a setting names: whether it is there, and what identifies it."""

from __future__ import annotations

from pathlib import Path

from endtask.corpus.contents import file_digest
from endtask.errors import InputError
from endtask.files.stage_folder import fingerprint
from endtask.select.vector_files import KEY, files_of, is_vector_file, refuse_missing_files


def refuse_missing_embedding(embedding: str | None) -> None:
    """Refuse an embedding that is not named or not there; of a model, the configuration is read."""
    if embedding is None:
        hint = "a model's folder, package:NAME, hf:NAME, or a file of vectors"
        raise InputError("neighbours needs an embedding", key=KEY, hint=hint)
    if is_vector_file(embedding):
        refuse_missing_files(Path(embedding))
        return
    from endtask.select.model_vectors import open_encoder

    open_encoder(embedding)


def embedding_fingerprint(embedding: str) -> str:
    """A hash of the files of vectors, or what identifies the model."""
    if is_vector_file(embedding):
        return fingerprint([file_digest(file) for file in files_of(Path(embedding))])
    from endtask.models.checkpoint_files import checkpoint_fingerprint

    return checkpoint_fingerprint(embedding)
