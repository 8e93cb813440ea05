"""The pile of unlabelled text: found, streamed, cut into passages, each kept once."""

from endtask.corpus.corpus import Corpus
from endtask.corpus.passages import cut

__all__ = ["Corpus", "cut"]
