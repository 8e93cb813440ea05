"""Copies of run folders made of hard links, and the kinds of damage that one of their files can take."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

Damage = Callable[[bytes, Random], bytes | None]
"""Returns the damaged bytes of a file; None deletes it."""


def _cut(content: bytes, random: Random) -> bytes:
    return content[: random.randrange(len(content))] if content else b"x"


def _flip(content: bytes, random: Random) -> bytes:
    damaged = bytearray(content or b"\0")
    damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
    return bytes(damaged)


def _zero(content: bytes, random: Random) -> bytes:
    """Zero up to a block of 4096 bytes, as a disk does after a crash."""
    start = random.randrange(max(1, len(content))) // 4096 * 4096
    damaged = content[:start] + bytes(len(content[start : start + 4096])) + content[start + 4096 :]
    return damaged if damaged != content else content + b"\0"


def _swap(content: bytes, random: Random) -> bytes:
    """Exchange two bytes that differ, which leaves the size and the sum of all bytes as they were."""
    first = random.randrange(max(1, len(content)))
    second = next((place for place in range(len(content)) if content[place] != content[first]), None)
    if second is None:
        return content + b"x"
    damaged = bytearray(content)
    damaged[first], damaged[second] = damaged[second], damaged[first]
    return bytes(damaged)


def _append(content: bytes, random: Random) -> bytes:
    return content + random.randbytes(random.randrange(1, 64))


def _delete(content: bytes, random: Random) -> None:
    return None


DAMAGES: dict[str, Damage] = {
    "cut": _cut,
    "flip": _flip,
    "zero": _zero,
    "swap": _swap,
    "append": _append,
    "delete": _delete,
}


def linked_copy(run: Path, target: Path) -> Path:
    """Return a copy of a run whose stages' files are hard links: replace them, but never write into them."""
    for path in sorted(run.rglob("*")):
        copy = target / path.relative_to(run)
        if path.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            if path.parent == run:  # such as run.log, to which runs append
                shutil.copyfile(path, copy)
            else:
                os.link(path, copy)
    return target


def damage(file: Path, kind: str, random: Random) -> None:
    """Damage a file of a linked copy; the other links keep their content."""
    damaged = DAMAGES[kind](file.read_bytes(), random)
    file.unlink()
    if damaged is not None:
        file.write_bytes(damaged)


@contextmanager
def damaged(file: Path, kind: str, random: Random) -> Iterator[None]:
    """Damage a file of a linked copy for the block."""
    whole = file.with_name(f".{file.name}.whole")
    os.link(file, whole)
    try:
        damage(file, kind, random)
        yield
    finally:
        os.replace(whole, file)


def files_of_stages(run: Path) -> Iterator[Path]:
    """Yield the files of a run's stages, relative to its folder."""
    for path in sorted(run.rglob("*")):
        name = path.relative_to(run)
        if path.is_file() and len(name.parts) > 1 and name.parts[0] not in ("scratch", "exports", "previous"):
            yield name
