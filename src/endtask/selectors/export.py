"""Export a run's selection for other tools: JSON Lines, Parquet, or the TLM authors' CSV."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from io import RawIOBase
from pathlib import Path
from typing import IO, Any, cast

import xxhash

from endtask.errors import InputError, did_you_mean
from endtask.io.compression import COMPRESSIONS, READ_FAILURES, atomic_compressed_file, bare_suffix, open_bytes
from endtask.io.run_layout import SELECTION, SETTINGS_FILE
from endtask.io.selection_table import read_batches, read_statistics
from endtask.io.spreadsheets import escaped
from endtask.io.stage_files import checked
from endtask.io.stage_folder import left_out


def export_selection(run: Path, target: Path, *, raw_cells: bool = False) -> dict[str, Any]:
    """Write the selection of a run to a new file, whose suffix decides the format, and return counts.

    In CSV, `raw_cells` leaves cells that spreadsheets take for formulas as they are. A file that has this selection
    already is left as it is: a command that was killed at its very end can be repeated.
    """
    write = _writer(target)
    if raw_cells and write is _write_csv:
        write = partial(_write_csv, raw_cells=True)
    table = _table_of(run)
    exists = target.exists() or target.is_symlink()
    if exists and not _has_selection(target, table, write):
        raise InputError("the file exists and was left as it is", path=target, hint="choose another name")
    if not target.parent.is_dir():
        raise InputError("no such folder", path=target.parent)
    sizes = read_statistics(table).bytes
    if not exists:
        with atomic_compressed_file(target) as stream:
            write(table, stream)
    return {"file": str(target), "passages": len(sizes), "bytes": int(sizes.sum())}


class _Digest(RawIOBase):
    """A stream that only computes the digest of what is written to it."""

    def __init__(self) -> None:
        self.state = xxhash.xxh3_128()

    def write(self, data: Any) -> int:
        """Add bytes to the digest."""
        self.state.update(data)
        return len(data)


def _has_selection(target: Path, table: Path, write: Callable[[Path, IO[bytes]], None]) -> bool:
    """Return whether a file has what would be written to it."""
    if not target.is_file():
        return False
    expected, found = _Digest(), _Digest()
    write(table, cast(IO[bytes], expected))
    try:
        with open_bytes(target) as stream:
            shutil.copyfileobj(stream, found, 1 << 20)
    except (InputError, *READ_FAILURES):
        return False
    return expected.state.digest() == found.state.digest()


def _writer(target: Path) -> Callable[[Path, IO[bytes]], None]:
    suffix = bare_suffix(target)
    if suffix not in _WRITERS:
        hint = did_you_mean(suffix, _WRITERS)
        if not hint.startswith("did you mean"):
            hint = f"known: {', '.join(_WRITERS)}, or those {' '.join(COMPRESSIONS)}"
        raise InputError("unknown kind of file", path=target, hint=hint)
    return _WRITERS[suffix]


def _table_of(run: Path) -> Path:
    table = run / "select" / SELECTION
    if table.is_file():
        return checked(table)
    if not (run / SETTINGS_FILE).exists():
        raise InputError("no run here", path=run, hint="endtask run --output FOLDER makes one")
    if left_out(run / "select"):
        raise InputError("the selected texts stayed on the machine where the bundle was made", path=run)
    raise InputError("no selection here yet", path=run, hint=f"make it first: endtask run {run} --until select")


def _write_jsonl(table: Path, stream: IO[bytes]) -> None:
    """Write an object per passage, with all columns."""
    for batch in read_batches(table):
        lines = [f"{json.dumps(row, ensure_ascii=False)}\n" for row in batch.to_pylist()]
        stream.write("".join(lines).encode())


def _write_csv(table: Path, stream: IO[bytes], *, raw_cells: bool = False) -> None:
    """Write `text,id,rank` with ranks from 0, as in the TLM authors' files."""
    import pyarrow.compute as compute

    protect = str if raw_cells else escaped
    stream.write(b"text,id,rank\n")
    for batch in read_batches(table, columns=["text", "id", "rank"]):
        ranks = compute.subtract(batch.column("rank"), 1)
        cells = (*(_quoted(map(protect, batch.column(name).to_pylist())) for name in ("text", "id")), ranks.to_pylist())
        lines = [f"{text},{name},{rank}\n" for text, name, rank in zip(*cells, strict=True)]
        stream.write("".join(lines).encode())


def _quoted(texts: Iterable[str]) -> list[str]:
    """Return the cells, all in quotes; the module `csv` is several times slower and does not quote `\\r`."""
    return ['"' + text.replace('"', '""') + '"' for text in texts]


def _write_parquet(table: Path, stream: IO[bytes]) -> None:
    with open(table, "rb") as file:
        shutil.copyfileobj(file, stream, 1 << 20)


_WRITERS: dict[str, Callable[[Path, IO[bytes]], None]] = {
    ".jsonl": _write_jsonl,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
