"""Pack prepared runs into one compressed file on the machine with the corpus, to train them on the one with the GPU."""

from endtask.bundle.unpack import unbundle
from endtask.bundle.write import write_bundle

__all__ = ["unbundle", "write_bundle"]
