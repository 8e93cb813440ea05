"""The results file of a comparison that was stopped before its end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from endtask.errors import InputError, TrainingError
from endtask.experiments import compare
from endtask.io.stage_folder import StageFolder
from endtask.pipeline.stage import RunData
from endtask.pipeline.stages import STAGES
from tests.experiments.compare_stubs import Made, Stubs, toy
from tests.experiments.test_compare import Killed
from tests.experiments.test_scheduler import HereWorker

Tree = dict[str, Any]
ORDER = ["one/seed-0", "one/seed-1", "two/seed-0", "two/seed-1"]
TRAINED = ["one/seed-0", "two/seed-0", "one/seed-1", "two/seed-1"]
"""The same in the order in which they are done: all variants with the first seed, then with the second."""
TWO = {"variants": {"one": {}, "two": {"pretrain.learning_rate": 3e-3}}, "seeds": [0, 1], "baselines": ["tfidf"]}
TERMINATED = """
import os, signal, sys
from pathlib import Path
import pytest
from endtask.experiments import compare
from tests.experiments.compare_stubs import Stubs, toy

class Terminated(Stubs):
    def _evaluate(self, data, folder):
        if self.calls[-1] == "one/seed-1 evaluate":
            os.kill(os.getpid(), signal.SIGTERM)
        return super()._evaluate(data, folder)

data, output, file = map(Path, sys.argv[1:])
Terminated().install(pytest.MonkeyPatch())
variants = {"one": {}, "two": {"pretrain.learning_rate": 3e-3}}
compare(toy(data, output), {"variants": variants, "seeds": [0, 1], "baselines": []}, results=file)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "results.json"


@pytest.fixture
def seen(file: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch) -> list[Tree | None]:
    """What the results file holds each time that a run begins to train."""
    found: list[Tree | None] = []
    work = STAGES["pretrain"].run

    def look(data: RunData, stage: StageFolder, made: Made) -> dict[str, Any]:
        found.append(json.loads(file.read_text()) if file.exists() else None)
        return work(data, stage, made)

    monkeypatch.setattr(STAGES["pretrain"], "run", look)
    return found


def held(tree: Tree) -> list[str]:
    """The keys of the runs in a results file."""
    return [run["variant"] if run["seed"] is None else f"{run['variant']}/seed-{run['seed']}" for run in tree["trials"]]


def after(done: int) -> list[str]:
    """What a results file holds after so many runs."""
    return [*(key for key in ORDER if key in TRAINED[:done]), "tfidf"]


def test_the_file_is_written_after_every_run(
    toy_files: Path, tmp_path: Path, file: Path, seen: list[Tree | None]
) -> None:
    compare(toy(toy_files, tmp_path / "out"), TWO, results=file)
    whole = json.loads(file.read_text())
    assert (whole["complete"], whole["missing"], held(whole)) == (True, [], [*ORDER, "tfidf"])
    assert seen[0] is None
    for done, tree in enumerate(seen[1:], start=1):
        assert tree is not None
        assert (tree["complete"], tree["missing"]) == (False, [key for key in ORDER if key in TRAINED[done:]])
        assert held(tree) == after(done)
        final = dict(zip(held(whole), whole["trials"], strict=True))
        assert tree["trials"] == [final[key] for key in held(tree)]
        assert tree["truth"] == whole["truth"]


@pytest.mark.parametrize("until", [None, "model"])
def test_the_same_on_devices(
    toy_files: Path, tmp_path: Path, file: Path, seen: list[Tree | None], until: str | None
) -> None:
    settings = toy(toy_files, tmp_path / "out", device="cpu")
    compare(settings, TWO, devices=["0"], start_worker=HereWorker, results=file, until=until)
    assert [tree and held(tree) for tree in seen] == [None, *(after(done) for done in (1, 2, 3))]
    assert json.loads(file.read_text())["complete"]


def test_a_run_is_written_down_before_baselines_are_worked_out(
    toy_files: Path, tmp_path: Path, file: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise Killed

    monkeypatch.setitem(sys.modules["endtask.experiments.baselines"]._UNTRAINED, "tfidf", killed)
    with pytest.raises(Killed):
        compare(toy(toy_files, tmp_path / "out"), TWO, results=file)
    tree = json.loads(file.read_text())
    assert (held(tree), tree["missing"], tree["complete"]) == (ORDER[:1], [*ORDER[1:], "tfidf"], False)


@pytest.mark.parametrize("place", ["two/seed-0 evaluate", "one/seed-1 pretrain"])
def test_killed_in_between_the_file_holds_what_is_finished(
    toy_files: Path, tmp_path: Path, file: Path, stubs: Stubs, place: str
) -> None:
    stubs.trouble[place] = Killed()
    settings = toy(toy_files, tmp_path / "out")
    with pytest.raises(Killed):
        compare(settings, TWO, results=file)
    done = sorted(f"{path.parents[2].name}/{path.parents[1].name}" for path in tmp_path.rglob("evaluate/manifest.json"))
    tree = json.loads(file.read_text())
    assert held(tree) == [*done, "tfidf"]
    assert done == sorted(TRAINED[: len(done)])
    assert tree["missing"] == [key for key in ORDER if key not in done]
    models = {name: 2 * sum(key.startswith(name) for key in done) for name in ("one", "two")}
    assert {row["name"]: row["models"] for row in tree["rows"]} == {**models, "tfidf": 1}


def test_killed_again_before_the_next_run_nothing_is_lost(
    toy_files: Path, tmp_path: Path, file: Path, stubs: Stubs
) -> None:
    settings = toy(toy_files, tmp_path / "out")
    for _ in range(2):
        file.unlink(missing_ok=True)
        stubs.trouble["one/seed-1 pretrain"] = Killed()
        with pytest.raises(Killed):
            compare(settings, TWO, results=file)
        assert held(json.loads(file.read_text())) == after(2)
    compare(settings, TWO, results=file)
    assert json.loads(file.read_text())["complete"]


def test_a_file_of_before_stands_until_there_is_something_to_write(
    toy_files: Path, tmp_path: Path, file: Path, stubs: Stubs
) -> None:
    file.write_text("before")
    stubs.trouble["one/seed-0 evaluate"] = Killed()
    with pytest.raises(Killed):
        compare(toy(toy_files, tmp_path / "out"), TWO, results=file)
    assert file.read_text() == "before"


def test_runs_that_broke_are_not_missing(toy_files: Path, tmp_path: Path, file: Path, stubs: Stubs) -> None:
    stubs.trouble["one/seed-1 pretrain"] = TrainingError("too hot")
    stubs.trouble["two/seed-1 pretrain"] = InputError("the disk is full")
    settings = toy(toy_files, tmp_path / "out")
    with pytest.raises(InputError, match="the disk is full"):
        compare(settings, TWO, results=file)
    tree = json.loads(file.read_text())
    assert (held(tree), tree["missing"]) == (["one/seed-0", "two/seed-0", "tfidf"], ["two/seed-1"])
    assert tree["rows"][0]["failures"] == ["too hot"]
    compare(settings, TWO, results=file)
    tree = json.loads(file.read_text())
    assert (tree["complete"], tree["missing"], len(tree["trials"])) == (True, [], 4)


def test_all_runs_broken_is_in_the_file_too(toy_files: Path, tmp_path: Path, file: Path, stubs: Stubs) -> None:
    stubs.trouble["base/seed-0 pretrain"] = TrainingError("too hot")
    with pytest.raises(InputError, match="no run trained to its end"):
        compare(toy(toy_files, tmp_path / "out"), {"baselines": []}, results=file)
    tree = json.loads(file.read_text())
    assert (tree["trials"], tree["complete"], tree["rows"][0]["failures"]) == ([], True, ["too hot"])


def test_prepared_is_not_complete(toy_files: Path, tmp_path: Path, file: Path, stubs: Stubs) -> None:
    outcome = compare(toy(toy_files, tmp_path / "out"), TWO, until="pack", results=file)
    tree = json.loads(file.read_text())
    assert (tree["complete"], tree["missing"], tree["trials"]) == (False, [*ORDER, "tfidf"], [])
    assert not outcome.is_complete


@pytest.mark.long
@pytest.mark.slow
def test_a_terminated_process_leaves_a_whole_file(
    toy_files: Path, tmp_path: Path, file: Path, repository: Path
) -> None:
    words = [sys.executable, "-c", TERMINATED, str(toy_files), str(tmp_path / "out"), str(file)]
    ended = subprocess.run(words, cwd=repository, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGTERM, ended.stderr
    tree = json.loads(file.read_text())
    assert (held(tree), tree["missing"], tree["complete"]) == (TRAINED[:2], TRAINED[2:], False)
