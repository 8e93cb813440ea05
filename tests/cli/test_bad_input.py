"""Every mistake of a user: exit code 2, one line that names the place, and no file made or changed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import zstandard

from endtask.training.optimizer import Optimizer
from tests.conftest import Answer
from tests.toy_run import hashes, write_rows, write_settings, write_toy

Command = Callable[..., Answer]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own with toy data and settings, and the working directory."""
    write_toy(tmp_path)
    write_settings(tmp_path / "settings.json", Path(), Path("out"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(command: Command, place: Path, *words: object) -> str:
    """The line said by a command that must refuse and leave everything as it is."""
    before = hashes(place), sorted(place.rglob("*"))
    answer = command(*words)
    assert answer.code == 2, answer
    assert answer.out == ""
    assert answer.err.startswith("endtask: ")
    assert answer.err.count("\n") == 1
    assert "Traceback" not in answer.err
    assert (hashes(place), sorted(place.rglob("*"))) == before
    return answer.err.removeprefix("endtask: ").rstrip("\n")


def append(path: str, line: str | bytes) -> None:
    with open(path, "ab") as file:
        file.write(line if isinstance(line, bytes) else line.encode())


def test_missing_files(place: Path, command: Command) -> None:
    assert refused(command, place, "run", "absent.yaml") == "absent.yaml: no such settings file"
    assert "absent" in refused(command, place, "run", "--task", "absent")
    assert "absent.jsonl" in refused(command, place, "run", "--task", "task", "--corpus", "absent.jsonl")
    assert "absent/*.txt" in refused(command, place, "check", "--task", "task", "--corpus", "absent/*.txt")
    assert "out/settings.yaml: no such settings file" in refused(command, _emptied(place), "run", "out")


def _emptied(place: Path) -> Path:
    (place / "out").mkdir()
    return place


def test_a_wrong_column(place: Path, command: Command) -> None:
    said = refused(command, place, "run", "settings.json", "--set", "task.columns.text=txet")
    assert "task/train.jsonl" in said
    assert "'txet'" in said
    assert "'text'" in said
    said = refused(command, place, "run", "settings.json", "--set", "corpus.sources=[{path: corpus.jsonl, text: body}]")
    assert "corpus.jsonl" in said
    assert "'body'" in said


def test_an_unknown_label_in_dev(place: Path, command: Command) -> None:
    append("task/dev.jsonl", '{"text": "a b", "label": "fodo"}\n')
    said = refused(command, place, "run", "settings.json")
    assert "task/dev.jsonl, row 19" in said
    assert "'fodo'" in said


def test_one_class_only(place: Path, command: Command) -> None:
    shutil.rmtree("task")
    write_rows(Path("task/train.jsonl"), [{"text": f"word {n}", "label": "same"} for n in range(40)])
    said = refused(command, place, "run", "settings.json")
    assert "task/train.jsonl" in said
    assert "'same'" in said


def test_an_empty_corpus(place: Path, command: Command) -> None:
    Path("corpus.jsonl").write_text("")
    assert "the corpus is empty" in refused(command, place, "run", "settings.json")
    Path("corpus.jsonl").write_text('{"text": "  "}\n')
    assert "corpus.jsonl" in refused(command, place, "run", "settings.json")


@pytest.mark.parametrize(
    ("line", "said"),
    [(b'{"text": "caf\x81", "label": "food"}\n', "neither UTF-8 nor Windows-1252"), ("nonsense\n", "not valid JSON")],
)
def test_broken_rows_of_the_task(place: Path, command: Command, line: str | bytes, said: str) -> None:
    append("task/test.jsonl", line)
    answer = refused(command, place, "run", "settings.json")
    assert "task/test.jsonl, row 19" in answer
    assert said in answer


def test_a_row_of_the_corpus_that_is_broken_at_once(place: Path, command: Command) -> None:
    Path("corpus.jsonl").write_bytes(b'{"text": "caf\xe9"}\n')
    assert "corpus.jsonl, row 1: not valid UTF-8" in refused(command, place, "run", "settings.json")


BROKEN_LATER = {
    "broken UTF-8": (b'{"text": "caf\xe9"}\n', "corpus.jsonl, row 201: not valid UTF-8"),
    "a row that is not JSON": (b"{'text': 'soup'}\n", "corpus.jsonl, row 201: not valid JSON"),
    "a row that is no object": (b'"soup"\n', "corpus.jsonl, row 201: not a JSON object"),
}


@pytest.mark.parametrize("kind", BROKEN_LATER)
def test_a_row_of_the_corpus_that_is_broken_later(place: Path, command: Command, kind: str) -> None:
    """Met in the middle of reading: the finished stage stays, nothing else does, and a mended file goes on."""
    line, said = BROKEN_LATER[kind]
    good = Path("corpus.jsonl").read_bytes()
    append("corpus.jsonl", line)
    answer = command("run", "settings.json", "--quiet")
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert said in answer.err
    left = {entry.name for entry in Path("out").iterdir()}
    assert left <= {"read", "retrieve.partial", "scratch", "settings.yaml", "run.log", ".lock"}
    Path("corpus.jsonl").write_bytes(good)
    assert command("run", "settings.json", "--quiet", "--until", "select").code == 0


def test_a_truncated_zst(place: Path, command: Command) -> None:
    whole = zstandard.compress(Path("corpus.jsonl").read_bytes())
    Path("corpus.jsonl").unlink()
    Path("corpus.jsonl.zst").write_bytes(whole[: len(whole) // 2])
    words = ("run", "settings.json", "--quiet", "--corpus", "corpus.jsonl.zst")
    answer = command(*words)
    assert answer.code == 2
    assert answer.err.startswith("endtask: corpus.jsonl.zst, row ")
    assert answer.err.count("\n") == 1
    Path("corpus.jsonl.zst").write_bytes(whole)
    assert command(*words, "--until", "select").code == 0
    task = zstandard.compress(Path("task/train.jsonl").read_bytes())
    Path("task/train.jsonl").unlink()
    Path("task/train.jsonl.zst").write_bytes(task[: len(task) // 2])
    assert "task/train.jsonl.zst, row " in refused(command, place, "run", "settings.json", "--output", "other")


def test_an_output_that_is_a_file_or_holds_other_things(place: Path, command: Command) -> None:
    said = refused(command, place, "run", "settings.json", "--output", "corpus.jsonl")
    assert said == "corpus.jsonl, key 'output_dir': cannot be written: File exists"
    assert "cannot be written" in refused(command, place, "run", "settings.json", "--output", "corpus.jsonl/out")
    assert "has other files (dev.jsonl)" in refused(command, place, "run", "settings.json", "--output", "task")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_that_cannot_be_written(place: Path, command: Command) -> None:
    locked = place / "locked"
    locked.mkdir(mode=0o500)
    assert "cannot be written: Permission denied" in refused(command, place, "run", "settings.json", "--output", locked)
    said = refused(command, place, "run", "settings.json", "--output", locked / "out")
    assert "cannot be written: Permission denied" in said
    assert "Permission denied" in refused(command, place, "init", locked / "my.yaml")


def test_changed_settings_in_an_old_run(place: Path, command: Command) -> None:
    assert command("run", "settings.json", "--until", "select").code == 0
    said = refused(command, place, "run", "settings.json", "--set", "retrieve.top_k=9")
    assert said.startswith("out: settings changed: retrieve.top_k (5 -> 9) since this run was made (redo with --from")
    append("corpus.jsonl", '{"text": "one more soup"}\n')
    assert "out: the files of the corpus (corpus.jsonl) changed" in refused(command, place, "run", "settings.json")
    assert command("run", "settings.json", "--until", "select", "--from", "retrieve").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "pretrain.learnin_rate=1"], "--set, key 'pretrain.learnin_rate': unknown setting (did you mean"),
        (["--set", "pretrain.learning_rate"], "write it as key=value"),
        (["--set", "pretrain.learning_rate=fast"], "key 'pretrain.learning_rate'"),
        (["--preset", "latop"], "unknown preset 'latop' (did you mean 'laptop'?)"),
        (["--until", "selct"], "unknown stage 'selct' (did you mean 'select'?)"),
        (["--from", "pretrian"], "unknown stage 'pretrian' (did you mean 'pretrain'?)"),
        (["--budget", "10 apples"], "--budget: '10 apples' is not an amount with a unit"),
        (["--set", "fintune.epochs=3"], "--set, key 'fintune': unknown setting (did you mean 'finetune'?)"),
        (["--budget", "10parsecs"], "600s, 10min, 50Mtok, 2000steps or 1e17flops"),
        (["--set", "task.type=txet"], "key 'task.type'"),
        (["--set", "tokenizer.path=absent"], "absent, key 'tokenizer.path': no such tokenizer folder"),
        (["--set", "model.hidden_size=17"], "key 'model.hidden_size'"),
        (
            ["--set", "pretrain.max_length=64"],
            "'pretrain.max_length': 64 is more than model.max_position_embeddings 32",
        ),
        (["--set", "finetune.max_length=33"], "'finetune.max_length': 33 is more than model.max_position_embeddings"),
        (["--set", "pretrain.batch_size=31tok"], "'pretrain.batch_size': 31tok is less than two texts of 16 tokens"),
        (["--set", "pretrain.batch_size=8parsecs"], "write it like 32 or 4096tok"),
        (["--set", "pretrain.batch_size=0"], "key 'pretrain.batch_size'"),
        (
            ["--set", "pretrain.weighting.rho1=often"],
            "key 'pretrain.weighting.rho1': must be a whole number or 'inf' or 'auto', got 'often'",
        ),
        (["--set", "pretrain.task_head=tml"], "key 'pretrain.task_head': must be 'stock' or 'tlm', got 'tml'"),
        (
            ["--set", "model.architecture=berta"],
            "key 'model.architecture': there is no encoder 'berta' (did you mean 'bert'?)",
        ),
        (["--set", "model.path=absent"], "absent, key 'model.path': no such checkpoint folder"),
        (["--set", "skip_pretraining=true", "--set", "skip_finetuning=true"], "would train nothing"),
        (["--set", "report_to=[tensorbord]"], "must be 'tensorboard', 'wandb', 'trackio' or 'mlflow'"),
    ],
)
def test_wrong_settings(place: Path, command: Command, words: list[str], said: str) -> None:
    assert said in refused(command, place, "run", "settings.json", *words)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the GPU that is asked for")
def test_no_gpu_where_one_is_asked_for(place: Path, command: Command) -> None:
    said = refused(command, place, "run", "settings.json", "--set", "device=cuda")
    assert said == "key 'device': this machine has no cuda device (use device=auto)"


def test_a_tracker_that_is_not_installed(place: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    said = refused(command, place, "run", "settings.json", "--set", "report_to=[wandb]")
    assert said.startswith("key 'report_to': wandb needs the package `wandb`")
    assert said.endswith("(pip install wandb)")


OF_STAGE_1 = {
    "model.attention=flex": "key 'model.attention': flex does not work here (cpu, torch.float32",
    "model.architecture=bert model.pooling=entity_markers": "key 'model.pooling': entity_markers: bert has cls",
    "pretrain.weighting.rho1=inf select.name=none": "key 'pretrain.objectives': nothing is left to train on",
}


@pytest.mark.parametrize("words", OF_STAGE_1)
def test_what_stage_1_would_refuse_is_refused_before_the_first_stage(place: Path, command: Command, words: str) -> None:
    changes = [word for change in words.split() for word in ("--set", change)]
    answer = command("run", "settings.json", "--quiet", *changes)
    assert (answer.code, answer.out) == (2, "")
    assert len(answer.errors) == 1
    assert OF_STAGE_1[words] in answer.err
    assert not (place / "out").exists()


def test_out_of_memory(place: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that names what to lower; the checkpoint stays, and the run goes on from it."""
    original, steps = Optimizer.step, []

    def step(optimizer: Optimizer, factor: float) -> object:
        steps.append(factor)
        if len(steps) == 4:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore lines")
        return original(optimizer, factor)

    monkeypatch.setattr(Optimizer, "step", step)
    answer = command("run", "settings.json", "--quiet")
    assert answer.code == 2
    assert len(answer.errors) == 1
    assert (
        "the device is out of memory: CUDA out of memory. Tried to allocate 2.00 GiB. (lower pretrain.batch_size"
        in (answer.err)
    )
    assert (place / "out" / "pretrain.partial" / "checkpoint.safetensors").exists()
    again = command("run", "settings.json", "--until", "pretrain")
    assert again.code == 0
    assert len(steps) == 4 + 4  # two of six stood in the checkpoint


def test_a_checkpoint_that_was_cut_off(place: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(optimizer: Optimizer, factor: float) -> object:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Optimizer, "step", stop)
        command("run", "settings.json", "--quiet")
    path = place / "out" / "pretrain.partial" / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    answer = command("run", "settings.json", "--quiet")
    assert answer.code == 2
    assert len(answer.errors) == 1
    assert "out/pretrain.partial/checkpoint.safetensors: damaged: " in answer.err
    assert "delete it to train this stage again from its start" in answer.err
    path.unlink()
    assert command("run", "settings.json", "--until", "pretrain").code == 0


def test_an_unknown_setting_in_a_file(place: Path, command: Command) -> None:
    Path("my.yaml").write_text("task:\n  path: task\ntrian:\n  batch_size: 8\n")
    said = refused(command, place, "run", "my.yaml")
    assert said == "my.yaml, key 'trian': unknown setting (did you mean 'pretrain'?)"
    Path("my.yaml").write_text("task: [\n")
    assert refused(command, place, "check", "my.yaml").startswith("my.yaml, row 2: not valid YAML")


def test_a_metric_of_another_kind(place: Path, command: Command) -> None:
    write_rows(Path("other/train.jsonl"), [{"text": f"word {n}", "label": n / 7} for n in range(60)])
    said = refused(command, place, "run", "--task", "other", "--output", "out", "--set", "evaluate.metric=f1")
    assert said.startswith("key 'evaluate.metric': 'f1' does not fit numbers (known: pearson")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run"], "key 'task.path': no task"),
        (["run", "--corpus", "corpus.jsonl", "--output", "out"], "key 'task.path': no task"),
        (["check"], "key 'task.path': no task to check"),
        (["retrieve", "--task", "task"], "key 'corpus.sources': no corpus to retrieve from"),
        (["retrieve", "settings.json", "--set", "select.name=none"], "key 'select.name'"),
        (["report", "task"], "task: no run here"),
        (["report", "absent"], "absent: no run here"),
        (["predict", "absent", "text"], "absent: no such folder"),
    ],
)
def test_what_is_missing(place: Path, command: Command, words: list[str], said: str) -> None:
    assert said in refused(command, place, *words)


def test_predict_on_an_unfinished_run(place: Path, command: Command) -> None:
    assert command("run", "settings.json", "--until", "read").code == 0
    said = refused(command, place, "predict", "out", "soup")
    assert said == "out: no trained model here (finish the run first: endtask run out)"


def test_a_removed_working_folder(command: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    def removed() -> str:
        raise FileNotFoundError

    monkeypatch.setattr("os.getcwd", removed)
    answer = command("ls")
    assert answer.code == 2
    assert answer.err.startswith("endtask: the working folder was removed")
