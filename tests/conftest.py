"""What every test shares: no network, one thread, and the way to the sample data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Set before any test imports torch or transformers. One thread each, as `make test` runs a process per core,
# and as the same bits are promised for the same number of threads only.
os.environ.update(
    HF_HUB_OFFLINE="1",
    TRANSFORMERS_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    OMP_NUM_THREADS="1",
    OPENBLAS_NUM_THREADS="1",
    MKL_NUM_THREADS="1",
    TOKENIZERS_PARALLELISM="false",
)

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of sample tasks and corpora beside the checkout."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the sample data (../shared/data beside the checkout) is not on this machine")
    return folder
