"""The output and the files of the commands, in this process."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from endtask.cli.init import starter_yaml
from endtask.cli.options import settings_from
from endtask.config import load_settings
from endtask.io.run_layout import STAGES
from endtask.task import Task
from tests.conftest import Answer
from tests.toy_run import hashes, results, write_settings

Command = Callable[..., Answer]
SMALL = [
    *("--set", "tokenizer.vocab_size=200", "--set", "model.hidden_size=16", "--set", "model.num_hidden_layers=1"),
    *("--set", "model.num_attention_heads=2", "--set", "pretrain.max_length=16", "--set", "finetune.max_length=16"),
    *("--set", "finetune.epochs=1", "--set", "finetune.seeds=[0]", "--set", "threads=1", "--set", "device=cpu"),
]


def test_the_shortest_way_needs_no_file(toy: Path, tmp_path: Path, command: Command) -> None:
    out = tmp_path / "out"
    answer = command(
        *("run", "--task", toy / "task", "--corpus", f"{toy}/*.jsonl", "--budget", "5steps", "--output", out, *SMALL)
    )
    assert answer.code == 0
    assert f"report: {out}/report.html" in answer.out
    assert f"try it: endtask predict {out}" in answer.out
    assert "macro-F1" in answer.out.splitlines()[0]
    assert (out / "model" / "model.safetensors").exists()
    assert load_settings(out / "settings.yaml").budget.text == "5steps"


def test_the_folder_is_named_after_the_task(
    toy: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("run", "--task", toy / "task", "--until", "read").code == 0
    assert (tmp_path / "runs" / "task" / "read").is_dir()
    monkeypatch.chdir(toy / "task")
    assert settings_from(None, task=".").output_dir == "runs/task"


def test_run_speaks_of_each_stage_and_skips_the_second_time(toy: Path, tmp_path: Path, command: Command) -> None:
    settings = write_settings(tmp_path / "settings.json", toy, tmp_path / "run")
    first = command("run", settings, "--until", "select")
    assert [f"{stage}: started" in first.err for stage in STAGES] == [True] * 3 + [False] * 5
    second = command("run", settings, "--until", "select")
    assert second.err.splitlines() == [f"{stage}: finished before, skipped" for stage in STAGES[:3]]
    assert command("run", settings, "--until", "select", "--quiet").err == ""


def test_quiet_leaves_the_warnings(toy: Path, tmp_path: Path, command: Command) -> None:
    settings = write_settings(tmp_path / "settings.json", toy, tmp_path / "run")
    changes = ("--set", "pretrain.weighting=meta", "--set", "skip_pretraining=true")
    answer = command("run", settings, *changes, "--until", "read", "--quiet")
    said = answer.err.splitlines()
    assert answer.code == 0, answer
    assert any(line.startswith("warning: pretrain.weighting without effect") for line in said)
    assert all(line.startswith("warning: ") for line in said)


def test_run_json_is_all_there_is_on_standard_output(own_run: Path, command: Command) -> None:
    answer = command("run", own_run, "--json")
    assert answer.code == 0
    statistics = json.loads(answer.out)
    assert statistics["folder"] == str(own_run)
    assert list(statistics["stages"]) == list(STAGES)


def test_dry_run(own_run: Path, command: Command) -> None:
    before = hashes(own_run)
    assert json.loads(command("run", own_run, "--dry-run", "--json").out) == dict.fromkeys(STAGES, "finished")
    answer = command("run", own_run, "--dry-run", "--from", "evaluate")
    assert [line.split(maxsplit=1)[1] for line in answer.out.splitlines()] == ["finished"] * 6 + ["is redone"] * 2
    changed = command("run", own_run, "--dry-run", "--set", "pretrain.learning_rate=0.5")
    assert "pretrain.learning_rate (0.001 -> 0.5)" in changed.out
    assert command("run", own_run, "--dry-run", "--until", "nowhere").code == 2
    assert hashes(own_run) == before


def test_from_on_the_folder_of_a_run(own_run: Path, finished_run: Path, command: Command) -> None:
    answer = command("run", own_run, "--from", "finetune")
    assert answer.code == 0
    assert "pretrain: finished before, skipped\nfinetune: started" in answer.err
    assert results(own_run) == results(finished_run)
    assert hashes(own_run / "previous" / "finetune") == hashes(finished_run / "finetune")


def test_set_overrides_reach_the_resolved_file(toy: Path, tmp_path: Path, command: Command) -> None:
    settings = write_settings(tmp_path / "settings.json", toy, tmp_path / "run")
    overrides = ("--set", "pretrain.learning_rate=1e-4", "--set", "finetune.seeds=[5]")
    assert command("run", settings, "--until", "read", *overrides).code == 0
    resolved = load_settings(tmp_path / "run" / "settings.yaml")
    assert (resolved.pretrain.learning_rate, resolved.finetune.seeds) == (1e-4, (5,))


def test_retrieve_alone(toy: Path, tmp_path: Path, command: Command) -> None:
    out = tmp_path / "out"
    words = ("retrieve", "--task", toy / "task", "--corpus", toy / "corpus.jsonl", "--output", out)
    answer = command(*words, "--set", "retrieve.top_k=5", "--set", "select.budget=50%")
    assert answer.code == 0
    queries, kept, quality, warning, table = answer.out.splitlines()
    assert queries.startswith("60 queries x 5 passages each retrieved ")
    assert " of 200 passages" in queries
    assert re.fullmatch(r"selected: \d+ passages, 0\.0 MB, [34]\d\.\d% of the corpus", kept)
    assert quality.startswith("quality: KL divergence from the task's n-grams ")
    assert "--set select.budget=5%" in warning
    assert table == f"table: {out}/select/selection.parquet"
    statistics = json.loads(command(*words, "--set", "retrieve.top_k=5", "--set", "select.budget=50%", "--json").out)
    assert statistics["retrieve"]["top_k"] == 5
    assert Path(statistics["table"]).exists()
    assert not (out / "pack").exists()


def test_report(own_run: Path, command: Command) -> None:
    (own_run / "report.html").unlink()
    answer = command("report", own_run)
    assert answer.code == 0
    assert answer.out.endswith(f"report: {own_run}/report.html\n")
    assert "<html" in (own_run / "report.html").read_text()
    statistics = json.loads(command("report", own_run, "--json").out)
    assert statistics["finished"] == list(STAGES)
    assert statistics["results"]["rows"] == 18


def test_init_writes_what_load_accepts(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "my-task.yaml"
    answer = command("init", path, "--task", "labels.csv", "--corpus", "notes=a/*.txt", "--corpus", "b.jsonl")
    assert answer == Answer(0, f"wrote {path}; next: endtask check {path}\n", "")
    settings = load_settings(path)
    assert settings.task.path == "labels.csv"
    assert [(source.name, source.path) for source in settings.corpus.sources] == [
        ("notes", "a/*.txt"),
        (None, "b.jsonl"),
    ]
    assert settings.output_dir == "runs/my-task"
    content = path.read_text()
    again = command("init", path)
    assert again.code == 2
    assert again.err == f"endtask: {path}: the file exists and was left as it is (choose another name)\n"
    assert path.read_text() == content
    for_task = command("init", tmp_path)
    assert for_task == Answer(
        2, "", f"endtask: {tmp_path}: the settings are written as YAML (give labelled data by --task)\n"
    )


def test_init_writes_what_is_set_and_reads_the_task_by_it(toy: Path, tmp_path: Path, command: Command) -> None:
    path, table = tmp_path / "my.yaml", tmp_path / "labels.csv"
    rows = [f"{['sun', 'moon', 'star'][n % 3]} number {n},{'ab'[n % 2]}" for n in range(40)]
    table.write_text("\n".join(["question,topic", *rows]) + "\n")
    words = ["init", path, "--task", table, "--corpus", toy / "corpus.jsonl", "--align"]
    assert command(*words, "--set", "pretrain.seed=7").code == 0
    settings = load_settings(path)
    assert (settings.task.columns.text, settings.task.columns.label) == ("question", "topic")
    assert (settings.pretrain.seed, settings.pretrain.weighting.name) == (7, "equal")
    assert settings.pretrain.objectives["aligned"].kind == "next_sentence"
    wrong = command("init", tmp_path / "other.yaml", "--set", "task.colums.text=question")
    assert wrong.err == "endtask: --set, key 'task.colums': unknown setting (did you mean 'task.columns'?)\n"
    assert not (tmp_path / "other.yaml").exists()


def test_init_guesses_task_columns_and_corpus(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f'{n},"text {n}, about {["wine", "law"][n % 2]}",{["drink", "court"][n % 2]},{n % 3}' for n in range(40)]
    (tmp_path / "reviews.csv").write_text("\n".join(["nr,abstract,area,stars", *rows]) + "\n")
    (tmp_path / "a.yaml").write_text("no: task")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "one.txt").write_text("some text")
    monkeypatch.chdir(tmp_path)
    assert command("init").code == 0
    settings = load_settings("endtask.yaml")
    assert (settings.task.path, settings.task.columns.text, settings.task.columns.label) == (
        "reviews.csv",
        "abstract",
        "area",
    )
    assert [source.path for source in settings.corpus.sources] == ["notes/"]
    assert "40 rows, type text, 2 labels (court, drink)" in (tmp_path / "endtask.yaml").read_text()
    assert Task.read(settings.task).labels == ("court", "drink")


def test_init_writes_also_where_the_task_cannot_be_read(tmp_path: Path, command: Command) -> None:
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    answer = command("init", tmp_path / "my.yaml", "--task", tmp_path / "bad.csv", "--corpus", "notes/*.txt")
    assert answer.code == 0
    assert "note: " in answer.err
    assert load_settings(tmp_path / "my.yaml").task.path == str(tmp_path / "bad.csv")


@pytest.mark.parametrize(("name", "said"), [("new/my.yaml", "no such folder"), ("my.json", "written as YAML")])
def test_init_refuses_places_that_cannot_work(tmp_path: Path, command: Command, name: str, said: str) -> None:
    answer = command("init", tmp_path / name)
    assert answer.code == 2
    assert said in answer.err
    assert list(tmp_path.iterdir()) == []


def test_each_line_of_the_starter_can_be_freed_alone(tmp_path: Path) -> None:
    text = starter_yaml("my.yaml", task="data", corpus=[{"path": "*.txt"}], output_dir="runs/my")
    lines = text.splitlines()
    plain = load_settings(_written(tmp_path, text))
    marked = [number for number, line in enumerate(lines) if line.lstrip().startswith("# ") and number > 3]
    assert len(marked) >= 8
    assert len(lines) <= 30
    for number in marked:
        freed = [*lines[:number], lines[number].replace("# ", "", 1), *lines[number + 1 :]]
        assert load_settings(_written(tmp_path, "\n".join(freed))) == plain, lines[number]


def _written(folder: Path, text: str) -> Path:
    path = folder / "starter.yaml"
    path.write_text(text)
    return path
