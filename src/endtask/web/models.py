"""Loaded models: the few that were used last, each behind a batcher; a model that was trained again is loaded again."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from pathlib import Path

from endtask.serving.predictor import load
from endtask.web.batching import Batcher

MOST_MODELS = 3
_FILES = ("config.json", "model.safetensors", "model.onnx", "model_quantized.onnx")

Version = tuple[int, ...]


class LoadedModels:
    """Gives the batcher of a run's model."""

    def __init__(self) -> None:
        self._loaded: OrderedDict[Path, tuple[Version, Batcher]] = OrderedDict()
        self._loading = asyncio.Lock()

    async def batcher(self, folder: Path) -> Batcher:
        """Return the batcher of a run; loads the model if needed, which raises `InputError` for a run without one."""
        version = _version(folder)
        found = self._loaded.get(folder)
        if found is not None and found[0] == version:
            self._loaded.move_to_end(folder)
            return found[1]
        async with self._loading:
            found = self._loaded.get(folder)
            if found is None or found[0] != version:
                batcher = Batcher(await asyncio.to_thread(load, folder))
                self._store(folder, version, batcher)
            return self._loaded[folder][1]

    def _store(self, folder: Path, version: Version, batcher: Batcher) -> None:
        before = self._loaded.pop(folder, None)
        self._loaded[folder] = (version, batcher)
        dropped = [before] if before else []
        while len(self._loaded) > MOST_MODELS:
            dropped.append(self._loaded.popitem(last=False)[1])
        for _, old in dropped:
            old.close()

    def close(self) -> None:
        """End the threads of all models."""
        for _, batcher in self._loaded.values():
            batcher.close()


def _version(folder: Path) -> Version:
    """Return the times of the model's files."""
    files = [folder / "model" / name for name in _FILES]
    return tuple(file.stat().st_mtime_ns for file in files if file.exists())
