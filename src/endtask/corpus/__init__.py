"""The corpus of unlabelled text: files found, streamed and cut into passages without duplicates."""

from endtask.corpus.corpus import Corpus
from endtask.corpus.passages import cut

__all__ = ["Corpus", "cut"]
