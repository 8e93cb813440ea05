"""The embedding that a setting names: whether it is there, and what identifies it."""

from __future__ import annotations

from pathlib import Path

from endtask.corpus.contents import file_digest
from endtask.corpus.sources import HUB_PREFIX
from endtask.errors import InputError
from endtask.files.stage_folder import fingerprint
from endtask.select.vector_files import KEY, files_of, is_vector_file, refuse_missing_files

_TOKENIZER_SUFFIXES = (".json", ".txt", ".model")


def refuse_missing_embedding(embedding: str | None) -> None:
    """Refuse an embedding that is not named or not there; of a model, configuration and tokenizer are read."""
    if embedding is None:
        hint = "a model's folder, package:NAME, hf:NAME, or a file of vectors"
        raise InputError("neighbours needs an embedding", key=KEY, hint=hint)
    if is_vector_file(embedding):
        refuse_missing_files(Path(embedding))
        return
    from endtask.select.model_vectors import open_encoder

    open_encoder(embedding)


def embedding_fingerprint(embedding: str) -> str:
    """A hash of the files of vectors, or what identifies the model and its tokenizer."""
    if is_vector_file(embedding):
        return fingerprint([file_digest(file) for file in files_of(Path(embedding))])
    from endtask.models.checkpoint_files import checkpoint_fingerprint, config_file

    model = checkpoint_fingerprint(embedding)
    if embedding.startswith(HUB_PREFIX):
        return model  # the revision, which the tokenizer shares
    files = sorted(file for file in config_file(embedding).parent.iterdir() if file.suffix in _TOKENIZER_SUFFIXES)
    return fingerprint(model, [(file.name, file_digest(file)) for file in files])
