"""A run whose task and corpus were deleted, so that only its bundles contain them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

import endtask
from endtask.bundle import write_bundle
from tests.toy_run import toy_settings, write_toy


class Bundled(NamedTuple):
    """A finished run, the folder where its data was, and its two bundles; read only."""

    run: Path
    data: Path
    tokens: Path
    text: Path


@pytest.fixture(scope="session")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Bundled:
    folder = tmp_path_factory.mktemp("bundled")
    data = write_toy(folder / "data")
    run = endtask.run(toy_settings(data, folder / "run")).folder
    tokens = write_bundle(run, folder / "tokens.tar.zst", kind="tokens").file
    text = write_bundle(run, folder / "text.tar.zst", kind="text").file
    shutil.rmtree(data)
    return Bundled(run, data, tokens, text)
