"""The held-out score of scoring models, and what makes them know more: a first round, a checkpoint of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.dummy import DummyClassifier
from sklearn.metrics import f1_score

from endtask.config import EvaluateSettings, Settings, resolve
from endtask.encoders.huggingface import save_masked_lm
from endtask.encoders.weights import load_weights
from endtask.errors import InputError
from endtask.io.selection_table import read_selection, read_statistics
from endtask.pipeline.preflight import preflight
from endtask.pipeline.run import Run
from endtask.selectors.base import by_bm25_rank
from endtask.selectors.influence import held_out as held_out_module
from endtask.selectors.influence.first_round import FirstRound
from endtask.selectors.influence.held_out import HeldOutScore, check_informed, held_out_score
from endtask.selectors.influence.scoring_model import fit, rate_from_checkpoint, scoring_settings
from endtask.task import Task
from endtask.tokenization.tokenizer import save_tokenizer
from tests.selectors.influence.small import make_run, make_runner, make_task, run_influence, small_settings
from tests.selectors.influence.test_kinds import make_kind
from tests.tiny import make_network, make_tokenizer


def scored(task: Task, outputs: Any, monkeypatch: pytest.MonkeyPatch) -> HeldOutScore:
    """The held-out score of a network with these outputs for the dev rows."""
    monkeypatch.setattr(held_out_module, "class_probabilities", lambda *args, **values: np.asarray(outputs))
    anything: Any = None
    return held_out_score(task, anything, anything, EvaluateSettings(), anything)


def test_scores_are_those_of_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task()
    truth = [task.labels.index(str(row.label)) for row in task.dev]
    answers = [*truth[:6], *((label + 1) % 3 for label in truth[6:])]
    found = scored(task, np.eye(3)[answers], monkeypatch)
    dummy = DummyClassifier().fit([[0]] * len(task.train), [row.label for row in task.train])
    assert found.score == pytest.approx(f1_score(truth, answers, average="macro"))
    majority = dummy.predict([[0]] * len(task.dev))
    assert found.majority == pytest.approx(f1_score([row.label for row in task.dev], majority, average="macro"))
    assert (found.metric, found.rows) == ("macro_f1", len(task.dev))
    orders = [np.random.default_rng(seed).permutation(answers) for seed in range(500)]
    assert found.chance == pytest.approx(
        np.quantile([f1_score(truth, order, average="macro") for order in orders], 0.95), abs=0.12
    )


@pytest.mark.parametrize("kind", ["text", "regression", "multilabel", "token_classification"])
def test_a_constant_predictor_is_not_informed_and_a_perfect_one_is(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task() if kind == "text" else make_kind(kind)
    if kind == "token_classification":
        tags = np.concatenate([[task.labels.index(tag) for tag in row.label] for row in task.dev])  # type: ignore[union-attr]
        perfect: Any = np.eye(len(task.labels))[tags]
    elif kind == "multilabel":
        perfect = np.asarray([[float(name in row.label) for name in task.labels] for row in task.dev])  # type: ignore[operator]
    elif kind == "regression":
        perfect = np.asarray([[row.label] for row in task.dev])
    else:
        perfect = np.eye(3)[[task.labels.index(str(row.label)) for row in task.dev]]
    assert scored(task, perfect, monkeypatch).is_informed
    assert not scored(task, np.repeat(perfect[:1], len(perfect), axis=0), monkeypatch).is_informed


def test_an_uninformed_model_stops_the_selection_or_warns(capsys: pytest.CaptureFixture[str]) -> None:
    weak, strong = HeldOutScore("accuracy", 0.5, 0.5, 0.4, 9), HeldOutScore("accuracy", 0.9, 0.5, 0.6, 9)
    check_informed([strong], stops=True)
    with pytest.raises(InputError, match=r"key 'select\.uninformed': .* accuracy 0\.500") as caught:
        check_informed([strong, weak], stops=True)
    assert "\n" not in str(caught.value)
    check_informed([weak], stops=False)
    assert "would select noise" in " ".join(capsys.readouterr().err.split())


def test_the_manifest_has_the_score_of_every_scoring_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="learned nothing that holds on other rows"):
        run_influence(tmp_path / "stopped", small_settings({"learning_rate": 1e-9, "uninformed": "error"}))
    counts, _ = run_influence(tmp_path / "warned", small_settings({"epochs": 1}))
    models = counts["influence"]["scoring_models"]
    assert [model["rows"] for model in models] == [12, 12]
    assert all({"metric", "score", "majority", "chance", "informed"} <= model.keys() for model in models)


def with_first_round(steps: int) -> Settings:
    settings = small_settings({"first_round_steps": steps, "targets": "dev"})
    corpus = settings.corpus.model_copy(update={"sources": ("some",)})
    train = settings.pretrain.model_copy(update={"learning_rate": 0.01})
    return settings.model_copy(update={"corpus": corpus, "pretrain": train})


def test_scoring_models_start_from_the_first_round(tmp_path: Path) -> None:
    settings = with_first_round(4)
    runner = make_runner(tmp_path, settings)
    (fold,) = runner.folds
    before = {name: value.clone() for name, value in fold.network().state_dict().items()}
    assert runner.read_first()["first_round"]["steps"] == 4
    candidates = read_statistics(runner.table)
    read = {row.document.id for row in read_selection(runner.folder / "first-round" / "best-ranked.parquet")}
    everything = [row.document.id for row in read_selection(runner.table)]
    assert read == {everything[index] for index in by_bm25_rank(candidates)[:10]}  # the budget is ten passages
    stored = fold.network()
    load_weights(fold.first_round, stored)
    after = fold.network().state_dict()
    assert all(torch.equal(value, after[name]) for name, value in stored.state_dict().items())
    assert any(not torch.equal(value, after[name]) for name, value in before.items())
    assert not any(name.startswith("heads.task") and not torch.equal(before[name], after[name]) for name in after)
    assert scoring_settings(settings).pretrain.learning_rate < scoring_settings(small_settings()).pretrain.learning_rate
    seen = fit(fold, label="scoring model")
    assert seen["held_out"]["rows"] == len(fold.task.dev)


def test_a_finished_first_round_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = with_first_round(2)
    first = make_runner(tmp_path, settings).read_first()
    monkeypatch.setattr(FirstRound, "phase", lambda self: pytest.fail("trained again"))
    assert make_runner(tmp_path, settings).read_first() == first


def checkpoint_in(folder: Path) -> Path:
    save_masked_lm(make_network("bert"), folder)
    save_tokenizer(make_tokenizer(), folder)
    return folder


def test_scoring_models_can_have_a_checkpoint_of_their_own(tmp_path: Path) -> None:
    settings = small_settings({"model": str(checkpoint_in(tmp_path / "model")), "targets": "dev"})
    (fold,) = make_runner(tmp_path, settings).folds
    network = fold.network()
    assert network.architecture.name == "bert"
    expected = make_network("bert").state_dict()
    found = network.state_dict()
    shared = [name for name in found if name.startswith("encoder.") and found[name].shape == expected[name].shape]
    assert shared
    assert all(torch.equal(found[name], expected[name]) for name in shared)
    assert fold.settings.pretrain.learning_rate == rate_from_checkpoint(network.config.hidden_size)


def test_a_missing_checkpoint_is_named_before_anything_runs(tmp_path: Path) -> None:
    settings = small_settings({"model": str(tmp_path / "nowhere")})
    corpus = settings.corpus.model_copy(update={"sources": ("some",)})
    with pytest.raises(InputError, match=r"select\.model"):
        preflight(make_task(), settings.model_copy(update={"corpus": corpus}))


Digest = Callable[[dict[str, Any], dict[str, Any]], str]


@pytest.fixture
def digest(toy: Path, tmp_path: Path) -> Digest:
    """The fingerprint of the stage `select` under options of influence and other settings."""

    def compute(options: dict[str, Any], changes: dict[str, Any]) -> str:
        tree = {
            "task": {"path": str(toy / "task")},
            "corpus": {"sources": [{"path": str(toy / "corpus.jsonl")}]},
            "output_dir": str(tmp_path / "run"),
            "select": {"name": "influence", "share_of_budget": None, **options},
            **changes,
        }
        return Run(resolve(tree)).stage_folders()["select"].fingerprint

    return compute


def test_what_makes_the_selection_anew(digest: Digest, tmp_path: Path) -> None:
    other_seed, other_rate = {"pretrain": {"seed": 5}}, {"pretrain": {"learning_rate": 0.02}}
    assert digest({}, {}) == digest({}, other_seed) == digest({}, other_rate)
    assert digest({"scoring_seed": "pretrain"}, {}) != digest({"scoring_seed": "pretrain"}, other_seed)
    assert digest({"first_round_steps": 5}, {}) != digest({"first_round_steps": 5}, other_rate)
    model = {"model": str(checkpoint_in(tmp_path / "model"))}
    before = digest(model, {})
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    assert digest(model, {}) != before


def test_the_seed_of_the_scoring_models(tmp_path: Path) -> None:
    settings = small_settings({"scoring_seed": "pretrain", "targets": "folds"})
    settings = settings.model_copy(update={"pretrain": settings.pretrain.model_copy(update={"seed": 7})})
    assert scoring_settings(settings).pretrain_seed == scoring_settings(settings).seed == 7
    assert make_run(tmp_path, settings, make_task(), tmp_path).seed == 0  # of the run, for everything else
