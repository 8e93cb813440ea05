"""Few-shot learning as a whole: results, resume, errors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from endtask.errors import InputError
from endtask.experiments.few_shot.few_shot import RECORD, few_shot
from endtask.experiments.few_shot.few_shot_report import PAGE
from endtask.experiments.few_shot.few_shot_scores import FewShotOutcome
from endtask.experiments.few_shot.few_shot_spec import FewShotSpec
from endtask.experiments.few_shot.few_shot_variants import VariantTrainer
from endtask.io.stage_files import write_manifest
from tests.aligned_toy import linked_rows
from tests.experiments.few_shot.conftest import make_run
from tests.toy_run import hashes, write_rows
from tests.toy_task_types import write_toy_of_type

SMALL = FewShotSpec(labels=(12, 24), samples=2, seeds=(0, 1), epochs=3, batch_size=8)


def results(outcome: FewShotOutcome) -> dict[str, str]:
    return hashes(outcome.folder, "runs/**/*.json")


@pytest.mark.parametrize("train", ["head", "transformer", "all"])
@pytest.mark.parametrize("run", ["plain_run", "tags_run"])
def test_everything_learns_and_is_scored(run: str, train: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    plan = FewShotSpec.model_validate({**SMALL.model_dump(), "train": (train,)})
    outcome = few_shot([request.getfixturevalue(run)], plan, tmp_path / "out")
    (row,) = outcome.rows
    assert [entry.labels for entry in row.entries] == [12, 24]
    assert all(entry.trials == 4 for entry in row.entries)
    for entry in row.entries:
        assert 1 <= entry.epoch <= 3
        assert 0 <= entry.scores["accuracy"].mean <= 1
        assert entry.scores["perplexity"].mean > 1
    assert len(results(outcome)) == 8
    stored = json.loads((outcome.folder / RECORD).read_text(encoding="utf-8"))
    assert stored["outcome"] == json.loads(json.dumps(outcome.to_dict()))
    assert "<svg" in (outcome.folder / PAGE).read_text(encoding="utf-8")


def test_more_labels_and_epochs_teach_a_head(plain_run: Path, tmp_path: Path) -> None:
    plan = FewShotSpec(labels=(40,), samples=1, epochs=20, batch_size=8, learning_rates=(1e-5, 3e-2))
    (row,) = few_shot([plain_run], plan, tmp_path / "out").rows
    (entry,) = row.entries
    assert entry.learning_rate == 3e-2
    assert entry.scores["accuracy"].mean > 0.6
    rates = entry.by_learning_rate
    assert [rate["learning_rate"] for rate in rates] == [1e-5, 3e-2]
    assert rates[0]["held_out_perplexity"] > rates[1]["held_out_perplexity"]


def test_equal_runs_do_not_differ(two_runs: tuple[Path, Path], tmp_path: Path) -> None:
    outcome = few_shot(two_runs, SMALL, tmp_path / "out")
    first, second = outcome.rows
    for one, other in zip(first.entries, second.entries, strict=True):
        for metric in ("accuracy", "perplexity"):
            score, difference = one.scores[metric], other.scores[metric].difference
            assert (score.mean, score.difference) == (other.scores[metric].mean, None)
            assert difference is not None
            assert (difference.p_holm, difference.mean) == (1, 0)


def test_folds_score_every_row_once(plain_run: Path, tmp_path: Path) -> None:
    plan = FewShotSpec(labels=(12,), folds=3, seeds=(0,), epochs=1, batch_size=8)
    outcome = few_shot(
        [
            plain_run,
        ],
        plan,
        tmp_path / "out",
    )
    files = sorted((outcome.folder / "runs").rglob("*.json"))
    assert len(files) == 3
    assert sum(len(json.loads(file.read_text(encoding="utf-8"))["predictions"]) for file in files) == 60 + 18 + 18


def test_a_stopped_command_resumes_with_the_same_results(
    plain_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = few_shot([plain_run], SMALL, tmp_path / "whole")
    half = few_shot([plain_run], SMALL.model_copy(update={"labels": (12,)}), tmp_path / "half")
    removed = sorted((half.folder / "runs").rglob("*.json"))[0]
    removed.unlink()
    (half.folder / ".texts-left").mkdir()
    asked: list[int] = []
    train = VariantTrainer.train
    monkeypatch.setattr(
        VariantTrainer, "train", lambda self, variant, trials: asked.append(len(trials)) or train(self, variant, trials)
    )
    again = few_shot([plain_run], SMALL, tmp_path / "half")
    assert asked == [5]
    assert results(again) == results(whole)
    assert again.to_dict() | {"folder": ""} == whole.to_dict() | {"folder": ""}
    assert not list(half.folder.glob(".texts-*"))


def test_labels_that_pretraining_saw_are_noted(toy: Path, tmp_path: Path) -> None:
    run = make_run(toy, tmp_path / "joint", pretrain={"max_length": 16, "batch_size": 8, "weighting": {"rho1": 1}})
    outcome = few_shot([run], FewShotSpec(labels=(12,), samples=1, epochs=1, head=("new", "keep")), tmp_path / "out")
    assert "used all 60 labels" in outcome.notes[0]
    assert [row.head for row in outcome.rows] == ["new", "keep"]
    with pytest.raises(InputError, match="--folds: pre-training used the labels of train"):
        few_shot([run], FewShotSpec(folds=3), tmp_path / "folds")
    assert not (tmp_path / "folds").exists()


def test_what_cannot_be_done_is_refused(plain_run: Path, toy_pairs: Path, tmp_path: Path) -> None:
    def refused(*runs: Path, plan: FewShotSpec = SMALL) -> str:
        with pytest.raises(InputError) as caught:
            few_shot(runs, plan, tmp_path / "out")
        assert not (tmp_path / "out").exists()
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "no run here" in refused(tmp_path / "absent")
    assert "no run to train on top of" in refused()
    assert "--head new" in refused(plain_run, plan=SMALL.model_copy(update={"head": ("keep",)}))
    assert "--labels 60 and 15 held-out rows: there are 60 rows to draw from (fewer --labels" in refused(
        plain_run, plan=FewShotSpec(labels=(60,))
    )
    half = Path(shutil.copytree(plain_run, tmp_path / "half"))
    shutil.rmtree(half / "pretrain")
    assert "pre-training is not finished (endtask run" in refused(half)
    twin = Path(shutil.copytree(plain_run, tmp_path / "twin" / "plain"))
    assert "two runs are called 'plain'" in refused(plain_run, twin)
    (twin / "pretrain" / "weights.safetensors").rename(twin / "weights")
    assert "the pre-trained weights are not here" in refused(twin)
    changed = Path(shutil.copytree(plain_run, tmp_path / "changed"))
    manifest = changed / "read" / "manifest.json"
    tree = json.loads(manifest.read_text(encoding="utf-8"))
    write_manifest(manifest.parent, {**tree, "inputs": {"task": "other"}})
    assert "changed since this run was made" in refused(changed)
    assert "not multilabel" in refused(
        make_run(write_toy_of_type(tmp_path / "data", "multilabel"), tmp_path / "labels")
    )
    other = make_run(toy_pairs, tmp_path / "pairs")
    assert "another task than that of" in refused(plain_run, other)


def test_results_made_otherwise_are_not_mixed(plain_run: Path, tmp_path: Path) -> None:
    plan = FewShotSpec(labels=(12,), samples=1, seeds=(0,), epochs=1)
    few_shot([plain_run], plan, tmp_path / "out")
    with pytest.raises(InputError, match=r"changed: .*epochs.*choose another --output"):
        few_shot([plain_run], plan.model_copy(update={"epochs": 2}), tmp_path / "out")
    (file,) = (tmp_path / "out" / "runs").rglob("*.json")
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match="not the result of a few-shot trial"):
        few_shot([plain_run], plan, tmp_path / "out")
    (tmp_path / "out" / RECORD).write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match="not the record"):
        few_shot([plain_run], plan, tmp_path / "out")


@pytest.fixture(scope="module")
def aligned_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tagging task whose pre-training learned where links are."""
    folder = tmp_path_factory.mktemp("aligned")
    return make_run(
        write_toy_of_type(folder / "data", "token_classification"),
        folder / "run",
        corpus={"sources": []},
        aligned={"sources": [{"path": str(write_rows(folder / "linked.jsonl", linked_rows()))}]},
        select={"name": "none"},
        pretrain={
            "max_length": 32,
            "batch_size": 8,
            "weighting": "equal",
            "objectives": {"links": {"kind": "hyperlinks", "span_labels": "bio"}},
        },
    )


@pytest.mark.parametrize("train", ["head", "all"])
def test_a_kept_head_is_where_all_seeds_start(aligned_run: Path, train: str, tmp_path: Path) -> None:
    plan = FewShotSpec.model_validate(
        {"labels": (12,), "samples": 1, "epochs": 1, "dropout": 0, "learning_rates": (1e-12,), "head": ("new", "keep")}
        | {"train": (train,)}
    )
    outcome = few_shot([aligned_run], plan, tmp_path / "out")
    said: dict[str, list[list[float]]] = {}
    for head in ("new", "keep"):
        files = sorted((outcome.folder / "runs" / "run" / f"{train}-{head}").glob("*.json"))
        said[head] = [json.loads(file.read_text(encoding="utf-8"))["losses"] for file in files]
    assert said["keep"][0] == pytest.approx(said["keep"][1], abs=1e-5)
    assert said["new"][0] != pytest.approx(said["new"][1], abs=1e-3)
    assert outcome.notes == ()
