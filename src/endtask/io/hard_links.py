"""The same file at a second place, without a second copy on disk where that can be."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from endtask.io.atomic import whole_file


def link_or_copy(file: Path, place: Path) -> None:
    """Make a hard link, or a copy where the disk has none; only for files that are never written to again."""
    try:
        os.link(file, place)
    except OSError:  # another disk, or one without hard links
        with whole_file(place) as aside:
            shutil.copyfile(file, aside)
