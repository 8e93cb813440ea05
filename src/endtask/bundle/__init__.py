"""Pack prepared runs into one file on the machine with the corpus, and unpack it on the machine with the GPU."""

from endtask.bundle.unpack import unbundle
from endtask.bundle.write import write_bundle

__all__ = ["unbundle", "write_bundle"]
