"""A prepared run in one compressed file: written where the corpus is, trained where the GPU is."""

from endtask.bundle.unpack import unbundle
from endtask.bundle.write import write_bundle

__all__ = ["unbundle", "write_bundle"]
