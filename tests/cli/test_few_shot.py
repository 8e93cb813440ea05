"""`endtask few-shot`: its output, and one line for each mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Answer
from tests.experiments.few_shot.conftest import make_run


@pytest.fixture(scope="module")
def run(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    train = {"max_length": 16, "batch_size": 8, "weighting": {"rho1": "inf"}}
    return make_run(toy, tmp_path_factory.mktemp("cli") / "run", pretrain=train)


def test_a_table_a_picture_and_values(run: Path, command: Callable[..., Answer], tmp_path: Path) -> None:
    asked = [
        run,
        "--labels",
        "10,20",
        "--samples",
        2,
        "--seeds",
        "0",
        "--learning-rates",
        "1e-3,1e-2",
        "--set",
        "epochs=2",
    ]
    answer = command("few-shot", *asked, "--output", tmp_path / "out")
    assert answer.code == 0
    assert "20 labels" in answer.out
    assert "perplexity" in answer.out
    assert answer.out.rstrip().endswith(f"report: {tmp_path / 'out' / 'few-shot.html'}")
    again = command("few-shot", *asked, "--output", tmp_path / "out", "--json", "-q")
    assert again.code == 0, again.err
    values = json.loads(again.out)
    assert values["tables"][0]["labels"] == [10, 20]
    assert values["spec"]["epochs"] == 2
    assert len(values["tables"][0]["rows"][0]["entries"][0]["by_learning_rate"]) == 2
    assert again.err == ""


def test_the_folder_is_the_runs_with_a_name_behind_it(run: Path, command: Callable[..., Answer]) -> None:
    answer = command("few-shot", run, "--labels", "8", "--samples", 1, "--set", "epochs=1", "-q")
    assert answer.code == 0
    assert (run.parent / "run-few-shot" / "few-shot.json").is_file()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--labels", "ten"], "--labels 'ten': not a number"),
        (["--labels", "0"], "greater than 0"),
        (["--labels", "8,8"], "8 is listed twice"),
        (["--seeds", "-1"], "seeds"),
        (["--set", "contrastive=1"], "brings vectors of the encoder together; train transformer or all"),
        (["--train", "heads"], "'head', 'transformer' or 'all'"),
        (["--head", "old"], "'new' or 'keep'"),
        (["--tasks", "both"], "'main' or 'all'"),
        (["--tasks", "all"], "a head alone learns nothing from other tasks; train transformer or all"),
        (["--tasks", "all", "--train", "all"], "--tasks all: the run has no auxiliary tasks"),
        (["--folds", "1"], "greater than or equal to 2"),
        (["--folds", "3", "--samples", "2"], "give one of --samples and --folds"),
        (["--folds", "3", "--held-out", "dev"], "with folds, the rows of dev are scored"),
        (["--held-out", "half"], "a share such as 0.25, or dev"),
        (["--learning-rates", "fast"], "--learning-rates 'fast': not a number"),
        (["--set", "epoch=3"], "did you mean 'epochs'?"),
        (["--set", "epochs"], "key=value"),
        (["--labels", "5000"], "--labels 5000 and 1250 held-out rows: there are 60 rows"),
    ],
)
def test_a_mistake_is_one_line(
    run: Path, command: Callable[..., Answer], tmp_path: Path, flags: list[str], said: str
) -> None:
    answer = command("few-shot", run, "--output", tmp_path / "out", *flags)
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith("endtask: ")
    assert answer.err.count("\n") == 1
    assert said in answer.err
    assert not (tmp_path / "out").exists()
