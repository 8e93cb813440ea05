"""What is attacked with damaged inputs: each door of the command line, with a valid file to start from."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.robustness.commands import FAMILIES, RUN, toy
from benchmarks.robustness.damages import DAMAGES, damaged, files_of_stages
from benchmarks.robustness.mutations import drawn_values, mutated, with_value
from endtask.config import load_settings

Outcome = tuple[int | None, str, str]
"""Exit code, standard output and standard error of a command."""
Run = Callable[..., Outcome]


@dataclass(frozen=True)
class Case:
    """A case: its description, and what attacks and returns the failure that it found, or None."""

    name: str
    attack: Callable[[], str | None]


def problem(outcome: Outcome) -> str | None:
    """Return what is wrong with how a command ended, whatever its input was."""
    code, _, errors = outcome
    lines = [line for line in errors.splitlines() if not line.startswith(("warning: ", "note: "))]
    if "Traceback (most recent call last)" in errors:
        return f"traceback: {lines[-1][:200]}"
    if code not in (0, 1, 2):
        return f"exit code {code}"
    if code == 2 and (len(lines) != 1 or len(lines[0]) > 1200):
        return f"{len(lines)} lines of {len(errors)} characters: {errors[:200]!r}"
    if any(character in errors for character in "\x1b\0\u202e"):
        return "control characters on the terminal"
    return None


def prepare(folder: Path, run: Run) -> None:
    """Write valid inputs of every format, and make a run, in the working folder `folder`."""
    rows = [json.loads(line) for line in (folder / "data/task/train.jsonl").read_text().splitlines()]
    texts = (folder / "data/corpus.jsonl").read_text().splitlines()[:40]
    seeds = folder / "seeds"
    seeds.mkdir(exist_ok=True)
    (seeds / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (seeds / "rows.json").write_text(json.dumps(rows))
    for name, separator in (("rows.csv", ","), ("rows.tsv", "\t")):
        (seeds / name).write_text(
            "".join(f"{row['text']}{separator}{row['label']}\n" for row in [{"text": "text", "label": "label"}, *rows])
        )
    (seeds / "corpus.jsonl").write_text("\n".join(texts) + "\n")
    (seeds / "corpus.txt").write_text("\n\n".join(json.loads(line)["text"] for line in texts))
    (seeds / "corpus.html").write_text("".join(f"<p>{json.loads(line)['text']}</p>\n" for line in texts))
    (seeds / "corpus.md").write_text(
        "\n".join(f"# {number}\n\n{json.loads(line)['text']}" for number, line in enumerate(texts))
    )
    _write_binary(seeds, rows, texts)
    (folder / "settings.json").write_text(json.dumps(toy()))
    (seeds / "settings.json").write_text(json.dumps(toy(), indent=1))
    import yaml

    (seeds / "settings.yaml").write_text(yaml.safe_dump(toy()))
    for words in (
        ("run", "settings.json", "-q"),
        ("bundle", RUN, "--output", "seeds/run.tar.zst"),
        ("selection", RUN, "--to", "seeds/selected.jsonl"),
    ):
        code, _, errors = run(*words)
        if code == 2 and words[0] != "run":  # as without the package zstandard
            print(f"left out: {words[0]}: {errors.strip()}", file=sys.stderr)
        elif code != 0:
            raise RuntimeError(f"{' '.join(words)}: {errors}")


def _write_binary(seeds: Path, rows: list[dict[str, Any]], texts: list[str]) -> None:
    import bz2
    import gzip
    import lzma
    import zipfile

    import pyarrow as pa
    import pyarrow.parquet as parquet

    corpus = ("\n".join(texts) + "\n").encode()
    for suffix, compress in (("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)):
        (seeds / f"corpus.jsonl.{suffix}").write_bytes(compress(corpus))
    if importlib.util.find_spec("zstandard"):
        import zstandard

        (seeds / "corpus.jsonl.zst").write_bytes(zstandard.compress(corpus))
    parquet.write_table(pa.Table.from_pylist(rows), seeds / "rows.parquet")
    parquet.write_table(pa.Table.from_pylist([json.loads(line) for line in texts]), seeds / "corpus.parquet")
    with zipfile.ZipFile(seeds / "corpus.zip", "w") as archive:
        archive.writestr("corpus.jsonl", corpus)


_TASK = ("check", "settings.json", "--task")
_CORPUS = ("retrieve", "settings.json", "--output", "out", "-q", "--corpus")
_DOORS: dict[str, tuple[tuple[str, ...], ...]] = {
    "rows.": (_TASK, ("predict", RUN)),
    "corpus.": (_CORPUS,),
    "settings.": (("run", "--dry-run"), ("check",)),
    "run.tar": (("run", "--output", "out", "-q", "--bundle"),),
    "selected.": (("select", "settings.json", "--output", "out", "-q", "--set", "select.name=imported", "--set"),),
}


def bytes_of_inputs(folder: Path, run: Run, number: int, random: Random) -> Iterator[Case]:
    """Yield cases: a valid input with mutated bytes, at the door that reads it."""
    seeds = sorted((folder / "seeds").iterdir())
    seed = seeds[number % len(seeds)]
    door = random.choice(next(doors for start, doors in _DOORS.items() if seed.name.startswith(start)))
    file = folder / f"mutated{seed.name[seed.name.index('.') :]}"
    file.write_bytes(mutated(seed.read_bytes(), random))
    _remove(folder / "out")
    last = f"select.path={file.name}" if seed.name.startswith("selected") else file.name
    yield Case(f"{seed.name}: {' '.join(door)}", lambda: problem(run(*door, last)))


def values_of_settings(folder: Path, run: Run, number: int, random: Random) -> Iterator[Case]:
    """Yield cases: settings, or rows of a task, with a value of hypothesis at a random place.

    The settings are those of a preset family with all keys, defaults included.
    """
    (folder / "family.json").write_text(json.dumps(random.choice(list(FAMILIES.values()))))
    tree = load_settings(folder / "family.json").model_dump(mode="json")
    rows = [json.loads(line) for line in (folder / "seeds/rows.jsonl").read_text().splitlines()]
    for value in drawn_values(number, 20):
        if random.random() < 0.7:
            changed, place = with_value(tree, value, random)
            (folder / "drawn.json").write_text(json.dumps(changed))
            words: tuple[str, ...] = random.choice((("run", "drawn.json", "--dry-run"), ("check", "drawn.json")))
        else:
            changed, place = with_value(rows, value, random)
            (folder / "drawn.jsonl").write_text("\n".join(json.dumps(row) for row in changed) + "\n")
            words = random.choice(
                (("check", "settings.json", "--task", "drawn.jsonl"), ("predict", RUN, "drawn.jsonl"))
            )
        yield Case(f"{' '.join(words)}: {place} = {value!r:.80}", lambda words=words: problem(run(*words)))  # type: ignore[misc]


_READERS: tuple[tuple[str, ...], ...] = (
    ("run", RUN, "-q"),
    ("report", RUN),
    ("predict", RUN, "soup bread", "star moon"),
    ("bundle", RUN, "--output", "again.tar.zst"),
    ("selection", RUN, "--to", "again.jsonl"),
    ("why", RUN, "0"),
    ("ls", "."),
)


def files_of_runs(folder: Path, run: Run, number: int, random: Random) -> Iterator[Case]:
    """Yield cases: a damaged file of a finished run, which `verify` has to name, and a command that reads the run."""
    files = list(files_of_stages(folder / RUN))
    file, kind, words = random.choice(files), random.choice(list(DAMAGES)), random.choice(_READERS)

    def attack() -> str | None:
        expected = _answer(folder, run, words)
        with damaged(folder / RUN / file, kind, random):
            found, checked = _answer(folder, run, words), run("verify", RUN, "-q")
        if failure := problem(found[0]) or problem(checked):
            return failure
        if checked[0] != 1 or file.name not in checked[1]:
            return "verify does not name the file"
        if found[0][0] == 0 and found[1] != expected[1] and "damaged" not in found[0][1]:  # `ls` says so in its table
            return "silent: another result without an error"
        return None

    yield Case(f"{kind} {file}: {' '.join(words)}", attack)


def _answer(folder: Path, run: Run, words: tuple[str, ...]) -> tuple[Outcome, Any]:
    """Return how a command ended, and what it gave: its output, and the files that it wrote."""
    for name in ("again.tar.zst", "again.jsonl"):
        _remove(folder / name)
    outcome = run(*words)
    written = [path.read_bytes() for path in (folder / "again.tar.zst", folder / "again.jsonl") if path.exists()]
    if words[0] in ("run", "report"):
        report = folder / RUN / "report.html"
        written.append(report.read_bytes())
    return outcome, (outcome[1], written)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists() or path.is_symlink():
        os.unlink(path)


KINDS = {"input bytes": bytes_of_inputs, "values": values_of_settings, "run files": files_of_runs}
