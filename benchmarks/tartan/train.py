"""Train bundles side by side on one GPU for so many seconds, and write what came of it.

    python3 -m benchmarks.tartan.train sciie-scratch-C.tar.zst chemprot-scratch-C.tar.zst --out rows --seconds 560

A small model leaves a GPU idle most of the time, so all bundles are worked at, each by some processes. Results and
figures of the way there are files of the bundle's name in `rows`, as the page wants them. Given again with the same
`--folder`, the command goes on. The weights of finished runs are taken away, which else fill a disk.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.curves import curves
from endtask.errors import InputError
from endtask.io.atomic import write_json
from endtask.io.stage_folder import read_manifest

ENDING = ".tar.zst"
_PAUSE = 2.0
_TO_STOP = 10.0
"""Seconds for a comparison to write what it has."""


def train(bundles: Sequence[Path], folder: Path, out: Path, *, processes: int, seconds: float) -> dict[str, int]:
    """Work at all bundles until they are done or the time is up; returns how many runs of each are finished."""
    until = time.monotonic() + seconds
    names = [bundle.name.removesuffix(ENDING) for bundle in bundles]
    work = [_start(bundle, folder / name, out, processes) for bundle, name in zip(bundles, names, strict=True)]
    try:
        while any(one.poll() is None for one in work) and time.monotonic() < until:
            drop_weights(folder)
            time.sleep(_PAUSE)
    finally:
        for one in work:
            one.terminate()
        for one in work:
            one.wait(_TO_STOP)
    for name in names:
        write_json(out / f"{name}.curves.json", curves(folder / name))
    return {name: len(finished_runs(folder / name)) for name in names}


def _start(bundle: Path, place: Path, out: Path, processes: int) -> subprocess.Popen[bytes]:
    devices = ",".join(["0"] * processes)
    given = [str(place)] if place.exists() else ["--bundle", str(bundle), "--output", str(place)]
    results = out / f"{place.name}.json"
    command = [sys.executable, "-m", "endtask", "compare", *given, "--devices", devices, "--results", str(results)]
    with open(out / f"{place.name}.log", "ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def finished_runs(comparison: Path) -> list[Path]:
    """The runs of a comparison that are scored."""
    runs = (comparison / "variants").glob("*/seed-*")
    return sorted(run for run in runs if read_manifest(run / "evaluate") is not None)


def drop_weights(folder: Path) -> None:
    """Take the weights of finished runs away; scores, predictions and curves stay."""
    for comparison in folder.iterdir():
        for run in finished_runs(comparison):
            for file in run.rglob("*.safetensors"):
                file.unlink()


def main() -> None:
    """Train what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", type=Path, nargs="+", help="TASK-BODY-NAME.tar.zst, as the page names them")
    parser.add_argument("--out", type=Path, required=True, help="where results go")
    parser.add_argument("--folder", type=Path, default=Path("runs/tartan-training"), help="room to work")
    parser.add_argument("--processes", type=int, default=3, help="at each bundle")
    parser.add_argument("--seconds", type=float, default=560.0, help="stop after so long")
    given = parser.parse_args()
    try:
        if odd := [file for file in given.bundles if not file.is_file() or not file.name.endswith(ENDING)]:
            raise InputError("no such bundle", path=odd[0], hint=f"a file that ends in {ENDING}")
        for place in (given.folder, given.out):
            place.mkdir(parents=True, exist_ok=True)
        done = train(given.bundles, given.folder, given.out, processes=given.processes, seconds=given.seconds)
    except InputError as error:
        parser.error(str(error))
    print(json.dumps(done))


if __name__ == "__main__":
    main()
