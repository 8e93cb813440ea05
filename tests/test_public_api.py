"""The public names, used like in the README."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import endtask
from tests.toy_run import results, toy_settings


def test_task_and_corpus(toy: Path) -> None:
    task = endtask.Task.read(toy / "task")
    assert (len(task.train), len(task.dev), len(task.test)) == (60, 18, 18)
    assert task.labels == ("food", "space", "sport")
    corpus = endtask.Corpus.read(toy / "corpus.jsonl")
    assert sum(1 for _ in corpus.documents()) == 200


def test_run_and_load(toy: Path, tmp_path: Path, finished_run: Path) -> None:
    result = endtask.run(toy_settings(toy, tmp_path / "run"))
    assert result.folder == tmp_path / "run"
    assert result.score is not None
    assert 0 <= result.score <= 1
    assert results(result.folder) == results(finished_run)  # same settings, same bits
    model = endtask.load(result.folder)
    label, probabilities = model.predict("soup bread salt"), model.predict_proba("soup bread salt")
    assert label == model.classes_[probabilities.argmax()]
    assert tuple(model.classes_) == ("food", "space", "sport")


def test_resolved_settings_as_plain_json(finished_run: Path, tmp_path: Path) -> None:
    resolved = endtask.load_settings(finished_run / "settings.yaml").model_dump(mode="json")
    plain = json.loads(json.dumps({**resolved, "output_dir": str(tmp_path / "run")}))
    result = endtask.run(plain, until="read")
    assert endtask.load_settings(result.folder / "settings.yaml").model_dump(mode="json") == plain


def test_a_mapping_may_name_a_preset(toy: Path, tmp_path: Path) -> None:
    given = {"preset": "mt-tartan-scratch", "task": {"path": str(toy / "task")}, "output_dir": str(tmp_path / "run")}
    result = endtask.run(given, until="read")
    expected = endtask.load_settings(preset="mt-tartan-scratch", given={k: given[k] for k in ("task", "output_dir")})
    assert endtask.load_settings(result.folder / "settings.yaml") == expected
    assert "preset" in given  # the caller's own mapping
    with pytest.raises(endtask.InputError, match="did you mean 'mt-tartan-scratch'"):
        endtask.run({**given, "preset": "mt-tartan-scrach"})


def test_errors_are_of_one_kind(tmp_path: Path) -> None:
    with pytest.raises(endtask.InputError, match="absent"):
        endtask.Task.read(tmp_path / "absent")
    with pytest.raises(endtask.InputError, match="absent"):
        endtask.run({"task": {"path": str(tmp_path / "absent")}, "output_dir": str(tmp_path / "run")})
    assert list(tmp_path.iterdir()) == []


def test_every_public_name_is_there() -> None:
    assert all(hasattr(endtask, name) for name in endtask.__all__)


def test_import_is_light() -> None:
    heavy = ("torch", "transformers", "pyarrow", "sklearn", "datasets", "tokenizers", "bm25s")
    program = f"import sys, endtask; print([name for name in {heavy} if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


def test_a_slip_in_the_data_is_told_before_torch_is_imported(tmp_path: Path) -> None:
    program = f"""
import sys
from endtask.cli.main import main
sys.argv = ["endtask", "check", "--task", {str(tmp_path / "absent")!r}]
try:
    main()
finally:
    print("torch" in sys.modules)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "False\n")
    assert ended.stderr == f"endtask: {tmp_path / 'absent'}: no such file or folder\n"
