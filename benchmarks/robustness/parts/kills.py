"""Random kills: a command is killed with SIGKILL, often several times, and repeated; its files must have the same bits."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.robustness.commands import Command, commands
from benchmarks.robustness.forks import Ended, random_moment, run, warm_up
from benchmarks.robustness.record import Row
from tests.toy_run import write_toy

Digests = dict[str, str | None]
HELP = "kill commands of every verb and preset family at random moments, repeat them, and compare the bits"
_MOST_KILLS = 4
_AGAIN = 0.5
"""The chance that a command which was killed is killed again when it is repeated."""
_EXISTS = "exists and was left as it is"
_IN_MANIFESTS = ("stage", "fingerprint", "settings", "inputs", "status", "files")
_NOT_COMPARED = ("run.log", ".lock", ".lock-holder", "log.txt")
_DURATION = rb"[\d.,]+ (?:s|min|h|J|kWh)\b"
_TIMES = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d UTC|%b(?: %b)?" % (_DURATION, _DURATION))
"""Of pages, which are compared without them: dates, durations and energy."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of this sub-command."""
    parser.add_argument("--only", metavar="NAME", action="append", help="a command, such as 'redo select' [all]")
    parser.add_argument("--folder", type=Path, help="keep the folders of failures here")


def measure(arguments: Namespace, rows: list[Row]) -> Iterator[Row]:
    """Yield a row for each round of a command: killed until it ended once, and compared."""
    warm_up()
    known = commands()
    names = arguments.only or list(known)
    rounds = {name: sum(row["command"] == name for row in rows) for name in names}
    ends = time.monotonic() + arguments.seconds
    with _workshop(arguments.folder) as folder:
        shop = Workshop(folder, known)
        while rounds and time.monotonic() < ends:
            name = min(rounds, key=lambda name: rounds[name])
            try:
                random = Random(f"{name} {arguments.seed} {rounds[name]}")
                yield {"seed": arguments.seed, **shop.round(known[name], random, rounds[name])}
                rounds[name] += 1
            except NotHere as error:
                print(f"left out: {error}", file=sys.stderr, flush=True)
                del rounds[name]


def summarize(rows: list[Row]) -> Row:
    """Return the number of kills and of lost results."""
    return {
        "kills_total": sum(row["kills"] for row in rows),
        "kills_lost": sum(row["lost"] is not None for row in rows),
        "kills_commands": len({row["command"] for row in rows}),
        "kills_rounds": len(rows),
    }


@contextmanager
def _workshop(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="endtask-kills-") as name:
        yield Path(name)


@dataclass(frozen=True)
class Expected:
    """What a command leaves when nothing disturbs it: the digests of its files, and the seconds that it computes.

    Files that differ between two undisturbed runs, since they hold times, have no digest.
    """

    files: Digests
    seconds: float


class NotHere(Exception):
    """A command that this machine refuses undisturbed, as without an optional package."""


class Workshop:
    """The folders in which commands are run, and what they leave undisturbed."""

    def __init__(self, folder: Path, known: dict[str, Command]) -> None:
        self._folder, self._known = folder, known
        self._expected: dict[str, Expected] = {}
        self._toy = folder / "toy"
        if not (self._toy / "corpus.jsonl").exists():
            write_toy(self._toy)

    def round(self, command: Command, random: Random, number: int) -> Row:
        """Kill a command, repeat it until it ends, and compare; return a row, in which `lost` is None or says what."""
        expected = self._undisturbed(command)
        place = self._prepare(command, f"round-{number}")
        moments: list[float] = []
        words, lost = command.words, None
        for _ in range(_MOST_KILLS):
            moment, delay = random_moment(random, expected.seconds)
            ended = self._run(command, words, place, kill_after=moment, delay=delay)
            if ended.code != -9:
                lost = _problem(ended)
                break
            moments.append(round(moment / expected.seconds, 3))
            words = command.then or command.words
            if random.random() > _AGAIN:
                break
        else:
            ended = Ended(-9, "", 0.0)
        if ended.code == -9:
            lost = _problem(self._run(command, words, place))
        changed = self._difference(command, digests(place))
        if changed is None and lost is not None and _EXISTS in lost:  # killed after its end: all is there, and stays
            lost = None
        lost = lost or changed
        self._clean(place, keep=lost is not None)
        return {"command": command.name, "round": number, "kills": len(moments), "moments": moments, "lost": lost}

    def _difference(self, command: Command, found: Digests) -> str | None:
        """Return how files differ from the undisturbed ones.

        A redo that was killed before it moved anything, and goes on without --from, leaves what was there before. If
        it is repeated with --from, stages that it had redone already become the previous ones, as documented.
        """
        expected = self._undisturbed(command).files
        if command.then is None and "--from" in command.words:
            expected = {name: None if "/previous/" in name else value for name, value in expected.items()}
        if command.then is not None and command.start is not None and not any("/previous/" in name for name in found):
            expected = self._undisturbed(self._known[command.start]).files
        return difference(expected, found)

    def _undisturbed(self, command: Command) -> Expected:
        if command.name not in self._expected:
            folders = [self._prepare(command, f"undisturbed-{number}") for number in range(2)]
            ends = [self._run(command, command.words, folder) for folder in folders]
            for ended in ends:
                if problem := _problem(ended):
                    raise (NotHere if ended.code == 2 else RuntimeError)(f"{command.name}, undisturbed: {problem}")
            found = [digests(folder) for folder in folders]
            files = {name: value if found[1].get(name) == value else None for name, value in found[0].items()}
            self._expected[command.name] = Expected(files, min(ended.cpu_seconds for ended in ends))
            self._clean(folders[1], keep=False)
        return self._expected[command.name]

    def _prepare(self, command: Command, purpose: str) -> Path:
        """Return a new folder with what a command starts from."""
        place = self._folder / command.name.replace(" ", "-") / purpose / "case"
        shutil.rmtree(place.parent, ignore_errors=True)
        if command.start is not None:
            start = self._known[command.start]
            self._undisturbed(start)
            shutil.copytree(
                self._folder / start.name.replace(" ", "-") / "undisturbed-0" / "case", place, symlinks=True
            )
        else:
            shutil.copytree(self._toy, place / "data")
        command.write(place)
        return place

    def _run(
        self, command: Command, words: tuple[str, ...], place: Path, kill_after: float | None = None, delay: float = 0.0
    ) -> Ended:
        return run(list(words), place, place.parent / "log.txt", kill_after=kill_after, delay=delay)

    def _clean(self, place: Path, *, keep: bool) -> None:
        if not keep:
            shutil.rmtree(place.parent, ignore_errors=True)


def _problem(ended: Ended) -> str | None:
    if ended.code is None:
        return "hangs"
    if ended.has_traceback:
        return f"traceback: {ended.output.strip().splitlines()[-1][:200]}"
    if ended.code != 0:
        return f"exit code {ended.code}: {(ended.output.strip().splitlines() or ['no output'])[-1][:300]}"
    return None


def digests(place: Path) -> Digests:
    """Return the digest of each file by its name; of manifests, pages and records of exports without their times."""
    files = (path for path in sorted(place.rglob("*")) if path.is_file() and path.name not in _NOT_COMPARED)
    return {path.relative_to(place).as_posix(): hashlib.sha256(_content(path)).hexdigest() for path in files}


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix == ".html":
        return _TIMES.sub(b"", content)
    if path.name == "export.json":
        return json.dumps({**json.loads(content), "made": None}, sort_keys=True).encode()
    if path.name != "manifest.json":
        return content
    manifest = json.loads(content)
    return json.dumps({key: manifest.get(key) for key in _IN_MANIFESTS}, sort_keys=True).encode()


def difference(expected: Digests, found: Digests) -> str | None:
    """Return the first file that is missing, extra or different; None without one."""
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            return f"missing: {name}"
        if name not in expected:
            return f"left over: {name}"
        if expected[name] is not None and expected[name] != found[name]:
            return f"differs: {name}"
    return None
