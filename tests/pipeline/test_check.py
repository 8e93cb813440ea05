"""`endtask check`: problems, examples as the model reads them, and the estimate, for toy and published tasks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from endtask.config import load_settings, resolve
from endtask.config.preset_files import preset_names
from endtask.errors import InputError
from endtask.pipeline.check import check
from endtask.pipeline.inputs import unread_corpus
from tests.conftest import Answer
from tests.toy_run import hashes, toy_settings, write_rows, write_settings, write_toy

Command = Callable[..., Answer]


def test_examples_and_estimate(toy: Path, tmp_path: Path) -> None:
    before = hashes(toy)
    train = {"max_length": 16, "mask_probability": 0.6}
    result = check(resolve(toy_settings(toy, tmp_path / "run", pretrain=train)))
    assert len(result.examples) == 2
    for example in result.examples:
        assert example.keys() == {"example", "text", "tokens", "masked"}
        assert example["masked"].startswith("[CLS]")
    assert any("[MASK]" in example["masked"] for example in result.examples)
    assert result.estimate is not None
    assert result.estimate.parameters > 0
    assert result.estimate.total_seconds == sum(result.estimate.seconds.values()) > 0
    assert result.estimate.corpus_bytes == pytest.approx(_corpus_bytes(toy), rel=0.05)
    lines = "\n".join(result.lines())
    assert all(f"\n{word} " in lines for word in ("time", "memory", "disk", "model", "corpus"))
    assert hashes(toy) == before
    assert list(tmp_path.iterdir()) == []


def _corpus_bytes(toy: Path) -> int:
    lines = (toy / "corpus.jsonl").read_text().splitlines()
    return sum(len(json.loads(line)["text"]) for line in lines)


def test_a_vocabulary_to_be_learned_from_the_corpus_counts_whole(toy: Path, tmp_path: Path) -> None:
    """The few texts that are tokenised here do not have all the tokens that a run will learn."""
    found = [
        check(resolve(toy_settings(toy, tmp_path / "run", tokenizer={"vocab_size": size}))).estimate
        for size in (6400, 12800)
    ]
    alone = check(resolve(toy_settings(toy, tmp_path / "run", tokenizer={"vocab_size": 12800}, corpus={"sources": []})))
    assert found[0] is not None
    assert found[1] is not None
    assert alone.estimate is not None
    width = (found[1].parameters - found[0].parameters) / 6400
    assert width == int(width) > 8, "a row of word vectors and a bias for each token"
    assert alone.estimate.parameters < found[0].parameters


def test_pairs_show_both_texts(toy_pairs: Path, tmp_path: Path) -> None:
    result = check(resolve(toy_settings(toy_pairs, tmp_path / "run", corpus={"sources": []})))
    assert " | " in result.examples[0]["text"]
    assert result.estimate is not None
    assert result.estimate.corpus_bytes == 0


@pytest.mark.parametrize(
    "train",
    [
        {"weighting": {"rho1": "inf"}},
        {"weighting": {"rho1": "auto"}},
        {"objectives": {"task": {"rho2": 0}}},
        {"task_head": "tlm", "eval_steps": 5},
        {"gradient_accumulation_steps": 3, "batch_ramp_fraction": 0.5},
    ],
    ids=str,
)
def test_every_kind_of_stage_1_can_be_looked_at(toy: Path, tmp_path: Path, train: dict[str, object]) -> None:
    """There is no selection yet, so the task's own text stands in for it."""
    settings = toy_settings(toy, tmp_path / "run", pretrain={"max_length": 16, "batch_size": "64tok", **train})
    result = check(resolve(settings))
    assert result.estimate is not None
    assert result.estimate.seconds["train"] > 0
    assert len(result.examples) == 2
    assert all(example["masked"].startswith("[CLS]") for example in result.examples)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"aligned": {"sources": [{"path": "/nowhere/linked.jsonl"}]}}, "/nowhere/linked.jsonl"),
        ({"finetune": {"head": "aligned"}}, "finetune.head"),
    ],
)
def test_what_aligned_objectives_lack_is_met(toy: Path, tmp_path: Path, changes: dict[str, Any], line: str) -> None:
    source = write_rows(tmp_path / "linked.jsonl", [{"text": "River stone. Green cloud."}])
    train = {"max_length": 32, "weighting": "equal", "objectives": {"own": {"kind": "hyperlinks"}}}
    settings = toy_settings(toy, tmp_path / "run", pretrain=train)
    settings["aligned"] = {"sources": [{"path": str(source)}]}
    for section, values in changes.items():
        settings[section] = {**settings.get(section, {}), **values}
    with pytest.raises(InputError, match=line):
        check(resolve(settings))


def test_gradients_kept_apart_are_in_the_estimate(toy: Path, tmp_path: Path) -> None:
    mlm = {"kind": "mlm", "texts": "task"}

    def memory(weighting: str, **objectives: object) -> float:
        train = {"max_length": 16, "batch_size": 8, "weighting": weighting}
        settings = toy_settings(toy, tmp_path / "run", pretrain=train, select={"name": "none"})
        settings["pretrain"]["objectives"] = {"task": {"kind": "task"}, **objectives}
        estimate = check(resolve(settings)).estimate
        assert estimate is not None
        return estimate.memory_bytes

    of_one_more = memory("meta", a=mlm, b=mlm) - memory("meta", a=mlm)
    assert of_one_more > 0
    # One of each of the two objectives, their sum and the held-out one.
    assert memory("meta", a=mlm) - memory("equal", a=mlm) == pytest.approx(4 * of_one_more)


def test_an_estimate_knows_all_batches_of_a_step(toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr("endtask.training.budget_plan.time.perf_counter", lambda: float(next(clock)))
    seconds = []
    for count in (1, 2):
        train = {"max_length": 16, "batch_size": 8, "gradient_accumulation_steps": count}
        estimate = check(resolve(toy_settings(toy, tmp_path / "run", pretrain=train, budget="4ktok"))).estimate
        assert estimate is not None
        seconds.append(estimate.seconds["train"])
    assert seconds[0] == pytest.approx(2 * seconds[1], rel=0.1)  # by this clock a step takes as long in both


def test_a_time_budget_is_kept_however_long_an_epoch_is(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("endtask.training.budget_plan._seconds_per_token", lambda phase, seconds: 0.5)
    finetune = {"epochs": 3, "max_length": 32, "seeds": [0, 1]}
    estimate = check(resolve(toy_settings(toy, tmp_path / "run", budget="4s", finetune=finetune))).estimate
    assert estimate is not None
    assert estimate.seconds["train"] == 4.0


def test_an_estimate_knows_what_is_read_to_select_anew(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("endtask.training.budget_plan._seconds_per_token", lambda phase, seconds: 0.5)

    def seconds(**reselect: object) -> float:
        train = {"max_length": 16, "batch_size": 8, "reselect": reselect}
        settings = toy_settings(toy, tmp_path / "run", pretrain=train, budget="40steps", select={"budget": "50%"})
        estimate = check(resolve(settings)).estimate
        assert estimate is not None
        return estimate.seconds["train"]

    without = seconds()
    often, rarely = (seconds(every=every, reservoir=8) - without for every in (5, 20))
    assert often == pytest.approx(4 * rarely)  # four times as many rounds
    assert 0 < rarely < seconds(every=20, reservoir=32) - without


def test_without_stage_1_fine_tuning_is_what_takes_time(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr("endtask.training.budget_plan.time.perf_counter", lambda: float(next(clock)))
    seconds = []
    for epochs, seeds, budget in ((2, [0], "100Mtok"), (4, [0, 1], "100Mtok"), (4, [0, 1], "1ktok")):
        finetune = {"max_length": 16, "epochs": epochs, "seeds": seeds}
        settings = toy_settings(toy, tmp_path / "run", skip_pretraining=True, finetune=finetune, budget=budget)
        estimate = check(resolve(settings)).estimate
        assert estimate is not None
        seconds.append(estimate.seconds["train"])
    assert seconds[1] == pytest.approx(4 * seconds[0], rel=0.1)
    assert 0 < seconds[2] < seconds[0]


def test_a_larger_corpus_takes_disk_and_not_memory(tmp_path: Path) -> None:
    data = write_toy(tmp_path)
    lines = (data / "corpus.jsonl").read_text()
    small = check(resolve(toy_settings(data, tmp_path / "run", select={"budget": "5%"}))).estimate
    (data / "corpus.jsonl").write_text(lines * 20)
    large = check(resolve(toy_settings(data, tmp_path / "run", select={"budget": "5%"}))).estimate
    without = check(resolve(toy_settings(data, tmp_path / "run", select={"name": "none"}))).estimate
    assert small is not None
    assert large is not None
    assert without is not None
    assert large.corpus_bytes == pytest.approx(20 * small.corpus_bytes)
    assert large.memory_bytes == small.memory_bytes
    assert large.disk_bytes - small.disk_bytes > 19 * 0.25 * small.corpus_bytes
    assert (without.corpus_bytes, without.seconds["retrieve"]) == (0, 0)
    assert without.disk_bytes < small.disk_bytes


def test_a_source_without_text_beside_one_with(toy: Path, tmp_path: Path, command: Command) -> None:
    (tmp_path / "empty.jsonl").write_text('{"text": " "}\n')
    (tmp_path / "scan.tiff").write_text("")
    both = ["--corpus", toy / "corpus.jsonl", "--corpus", tmp_path]
    words = ["check", "--task", toy / "task", "--quiet", "--set", "device=cpu"]
    printed = command(*words, *both).out
    assert "\ncorpus    about 0 MB of text\n" in printed
    assert f"\nnote: 1 file of {tmp_path} not read, of no known format: scan.tiff\n" in printed
    answer = command(*words, *both[2:])
    assert answer.code == 2
    assert "the corpus is empty: no text in any of its sources" in answer.err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["select.name=imported"], "key 'select.path': no file to import the selection from"),
        (
            ["select.name=random", "select.neighbors=3"],
            "key 'select.neighbors': selector 'random' has no such option",
        ),
        (["select.name=random", "corpus.sources=[]"], "key 'corpus.sources': random selects from a corpus"),
    ],
)
def test_what_the_run_would_refuse(toy: Path, tmp_path: Path, command: Command, changes: list[str], said: str) -> None:
    settings = write_settings(tmp_path / "settings.json", toy, tmp_path / "run")
    answer = command("check", settings, *(word for change in changes for word in ("--set", change)))
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    assert said in answer.err


@pytest.mark.parametrize("kind", ["regression", "token_classification"])
def test_other_kinds_are_audited_and_estimated(tmp_path: Path, command: Command, kind: str) -> None:
    rows: list[dict[str, object]] = [{"text": f"word {n}", "label": n / 7} for n in range(60)]
    if kind == "token_classification":
        rows = [{"tokens": ["soup", str(n)], "tags": ["B-food", "O"]} for n in range(60)]
    write_rows(tmp_path / "train.jsonl", rows)
    answer = command("check", "--task", tmp_path, "--json")
    assert answer.code in (0, 1)
    assert json.loads(answer.out)["estimate"]["parameters"] > 0
    assert json.loads(answer.out)["audit"]["type"] == kind


def test_json_is_all_there_is_on_standard_output(toy: Path, tmp_path: Path, command: Command) -> None:
    settings = write_settings(tmp_path / "settings.json", toy, tmp_path / "run")
    answer = command("check", settings, "--json")
    statistics = json.loads(answer.out)
    assert statistics.keys() == {
        "audit",
        "tasks",
        "leaks_between_tasks",
        "likely_markers",
        "unread_corpus",
        "unread_files",
        "unused_settings",
        "validation_warnings",
        "examples",
        "data_usage",
        "estimate",
    }
    assert statistics["estimate"]["total_seconds"] > 0
    assert answer.err == ""
    assert answer.code == 0


def test_without_a_corpus_nothing_is_said_to_read_a_selection(toy: Path, tmp_path: Path) -> None:
    with_corpus = check(resolve(toy_settings(toy, tmp_path / "run")))
    without = check(resolve(toy_settings(toy, tmp_path / "run", corpus={})))
    parts = [[use.part for use in result.data_usage] for result in (with_corpus, without)]
    assert "corpus" in parts[0]
    assert parts[1] == [part for part in parts[0] if part != "corpus"]


def test_marks_that_are_not_named_are_pointed_out(tmp_path: Path, command: Command) -> None:
    rows: list[dict[str, object]] = [{"text": f"[[ name {n} ]] is here", "label": "ab"[n % 2]} for n in range(40)]
    write_rows(tmp_path / "train.jsonl", rows)
    hint = 'tokenizer.entity_markers: ["[[", "]]"]'
    assert hint in command("check", "--task", tmp_path, "--set", "tokenizer.entity_markers=[]").out
    assert hint not in command("check", "--task", tmp_path).out
    assert hint not in command("check", "--task", tmp_path, "--set", 'tokenizer.entity_markers=["[[", "]]"]').out


def test_a_corpus_that_nothing_reads_is_told(toy: Path, tmp_path: Path, command: Command) -> None:
    given = ["--preset", "mt-tartan-scratch", "--task", toy / "task", "--corpus", toy / "corpus.jsonl"]
    small = ["model.size=tiny", "tokenizer.vocab_size=200", "pretrain.max_length=16", "finetune.max_length=16"]
    small = [word for value in (*small, "pretrain.batch_size=8", "finetune.batch_size=8") for word in ("--set", value)]
    said = "warning: nothing reads the corpus: select.name is none, and no objective reads the domain "
    told = f"{said}(pretrain.objectives.dapt.weight=1 would)"
    assert told in command("check", *given, *small).out.splitlines()
    assert said not in command("check", *given, *small, "--set", "pretrain.objectives.dapt.weight=1").out
    run = command("run", *given, *small, "--output", tmp_path / "run", "--until", "read")
    assert told in run.err.splitlines()
    other = toy_settings(toy, tmp_path / "other", select={"name": "none"})
    assert str(unread_corpus(resolve(other))).endswith("(another select.name would)")


def test_weights_that_dev_chooses_are_told(toy: Path, tmp_path: Path, command: Command) -> None:
    given = ["--task", toy / "task", "--preset", "meta-tartan-scratch", "--set", "model.size=tiny"]
    small = ["--set", "pretrain.max_length=16", "--set", "finetune.max_length=16", "--set", "device=cpu"]
    said, few = (
        "warning: labels of dev choose the weights of objectives, so ",
        "warning: dev, whose loss sets the learned weights",
    )
    by_dev = ["--set", "pretrain.weighting.split=dev", "--set", "pretrain.weighting.gradient_batch=1000"]
    lines = command("check", *given, *small, *by_dev).out.splitlines()
    assert [sum(line.startswith(start) for line in lines) for start in (said, few)] == [1, 1]
    by_folds = command("check", *given, *small, "--set", "pretrain.weighting.split=folds").out
    assert said not in by_folds
    run = command("run", *given, *small, *by_dev, "--output", tmp_path / "run", "--until", "read")
    assert sum(line.startswith(said) for line in run.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("budget", "changes", "told"),
    [
        ("40steps", {}, 1),
        ("200steps", {}, 0),
        ("40steps", {"weighting": "equal"}, 0),
        ("40steps", {"weighting": {"name": "meta", "learning_rate": 0.1}}, 0),
        ("10min", {}, 0),
    ],
)
def test_weights_that_cannot_get_anywhere_are_told(budget: str, changes: dict[str, Any], told: int) -> None:
    objectives = {"task": {"kind": "task"}, "tapt": {"kind": "mlm", "texts": "task"}}
    train = {"weighting": {"name": "meta", "learning_rate": 0.01}, "objectives": objectives, **changes}
    lines = tuple(resolve({"task": {"path": "here"}, "budget": budget, "pretrain": train}).unused_settings())
    expected = "pretrain.weighting.learning_rate hardly has an effect: 40 steps of 0.01 move a logit by 0.4 at most"
    assert [line.split(", and ")[0] for line in lines] == [expected] * told


@pytest.mark.parametrize(
    ("meta", "told"),
    [
        ({"split": "dev", "folds": 5}, "pretrain.weighting.folds without effect: pretrain.weighting.split is dev"),
        (
            {"head": "task", "fit_batch": 5},
            "pretrain.weighting.fit_batch without effect: pretrain.weighting.head is task",
        ),
        ({"head": "adamw", "folds": 5}, None),
        ({"parameters": "all"}, None),
    ],
)
def test_values_for_a_choice_that_was_not_made_are_told(meta: dict[str, Any], told: str | None) -> None:
    objectives = {"task": {"kind": "task"}, "tapt": {"kind": "mlm", "texts": "task"}}
    tree = {"task": {"path": "here"}, "pretrain": {"weighting": {"name": "meta", **meta}, "objectives": objectives}}
    assert tuple(resolve(tree).unused_settings()) == (() if told is None else (told,))
    alone = tuple(resolve({**tree, "skip_pretraining": True}).unused_settings())
    assert alone == ("pretrain.weighting without effect: skip_pretraining is true",)


@pytest.mark.parametrize("verb", ["check", "run"])
def test_learned_weights_of_one_objective_are_refused(verb: str, toy: Path, command: Command) -> None:
    """Without a corpus, TLM's masked LM on the selection is left out, and its other objective would be alone."""
    given = ["--task", toy / "task", "--set", "model.size=tiny", "--set", "pretrain.weighting=meta"]
    answer = command(verb, *given)
    assert answer.code == 2
    assert answer.err.splitlines()[-1] == (
        "endtask: key 'pretrain.weighting': meta has nothing to weigh: without corpus text task is alone"
        " (name a corpus, add an objective, or use equal)"
    )


@pytest.mark.parametrize("preset", sorted(preset_names()))
def test_no_preset_has_settings_without_effect(preset: str) -> None:
    given = {"task": {"path": "here"}}
    try:
        settings = load_settings(preset=preset, given=given)
    except InputError:  # of some, the user names the checkpoint
        settings = load_settings(preset=preset, given={**given, "model": {"path": "package:some"}})
    assert tuple(settings.unused_settings()) == ()


def test_a_leak_is_named(tmp_path: Path, command: Command) -> None:
    data = write_toy(tmp_path)
    leaked = json.loads((data / "task" / "train.jsonl").read_text().splitlines()[0])
    write_rows(data / "task" / "test.jsonl", [leaked, {"text": "new words", "label": "food"}])
    answer = command("check", "--task", data / "task", "--quiet", "--set", "device=cpu")
    assert "1 of 2 test rows" in answer.out


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("citation_intent", "52 of 139 test rows (37%) are verbatim in train"),
        ("chemprot", "13 classes"),
    ],
)
@pytest.mark.slow
def test_published_tasks(shared_data: Path, command: Command, task: str, said: str) -> None:
    answer = command("check", "--task", shared_data / "tasks" / task, "--quiet")
    assert all("lose a marker" in line for line in answer.err.splitlines())
    assert said in answer.out
    if task == "citation_intent":
        assert "trust the leak-free score (87 rows)" in answer.out  # what it means
    assert "masked    [CLS]" in answer.out
    assert "\ntime      about " in answer.out
