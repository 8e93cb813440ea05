"""The stages of a run: done once, skipped, redone, or stopped by an error because an input changed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import endtask
from endtask.config import load_settings, resolve
from endtask.errors import InputError, TrainingError
from endtask.io.processes import run_lock
from endtask.io.run_layout import STAGES
from endtask.io.stage_files import write_manifest
from endtask.io.stage_folder import StageFolder
from endtask.pipeline.run import Run
from endtask.pipeline.stages import STAGES as ALL_STAGES
from tests.toy_run import hashes, results, toy_settings, write_rows, write_toy


def manifest(run: Path, stage: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / stage / "manifest.json").read_text())
    return found


def times(folder: Path) -> dict[str, int]:
    return {str(file): file.stat().st_mtime_ns for stage in STAGES for file in (folder / stage).rglob("*")}


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_leaves_a_manifest(finished_run: Path, stage: str) -> None:
    found = manifest(finished_run, stage)
    assert found["stage"] == stage
    assert found["status"] == "finished"
    assert found["seconds"] >= 0
    assert {"settings", "inputs", "counts", "fingerprint", "plan", "finished"} <= found.keys()
    assert {"python", "torch", "transformers", "tokenizers", "numba", "endtask"} <= found["versions"].keys()


def test_manifests_hold_settings_inputs_and_counts(finished_run: Path) -> None:
    assert manifest(finished_run, "read")["counts"] == {"train": 60, "dev": 18, "test": 18}
    assert manifest(finished_run, "read")["inputs"].keys() == {"task"}
    assert manifest(finished_run, "retrieve")["inputs"].keys() == {"corpus", "read"}
    assert manifest(finished_run, "retrieve")["settings"]["retrieve"]["top_k"] == 5
    assert manifest(finished_run, "retrieve")["counts"]["corpus"]["passages"] == 200
    assert 0 < manifest(finished_run, "select")["counts"]["share_of_corpus"] <= 0.5
    assert manifest(finished_run, "pretrain")["plan"]["steps"] == manifest(finished_run, "pretrain")["counts"]["steps"]
    assert [seed["seed"] for seed in manifest(finished_run, "finetune")["counts"]["seeds"]] == [0, 1]


def test_nothing_half_done_is_left(finished_run: Path) -> None:
    names = {entry.name for entry in finished_run.iterdir()}
    assert names == {*STAGES, "scratch", "settings.yaml", "run.log", "report.html", ".lock"}
    assert {entry.name for entry in (finished_run / "scratch").iterdir()} == {"shards"}
    assert not list(finished_run.rglob("*.partial"))
    assert not list(finished_run.rglob("*.tmp"))
    assert not list(finished_run.rglob("checkpoint.safetensors"))


def test_the_log_has_every_line_and_goes_on(toy: Path, own_run: Path) -> None:
    endtask.run(toy_settings(toy, own_run))
    lines = [line[20:] for line in (own_run / "run.log").read_text(encoding="utf-8").splitlines()]
    assert [line for line in lines if line.endswith(": started")] == [f"{stage}: started" for stage in STAGES]
    assert lines[-len(STAGES) :] == [f"{stage}: finished before, skipped" for stage in STAGES]


def test_a_second_call_does_nothing(toy: Path, own_run: Path) -> None:
    before = times(own_run)
    result = endtask.run(toy_settings(toy, own_run))
    assert times(own_run) == before
    assert result.score == manifest(own_run, "evaluate")["counts"]["mean"]


def test_resolved_settings_are_accepted_back(finished_run: Path) -> None:
    settings = load_settings(finished_run / "settings.yaml")
    assert [state for _, state in Run(settings).plan()] == ["finished"] * len(STAGES)


@pytest.mark.parametrize("form", ["mapping", "typed", "yaml", "json", "folder"])
def test_settings_in_every_form(own_run: Path, tmp_path: Path, form: str) -> None:
    typed = load_settings(own_run / "settings.yaml", given={"output_dir": str(own_run)})
    plain = typed.model_dump(mode="json")
    as_json = tmp_path / "settings.json"
    as_json.write_text(json.dumps(plain))
    as_yaml = tmp_path / "settings.yaml"
    as_yaml.write_text(json.dumps(plain))  # JSON is YAML too
    forms = {"mapping": plain, "typed": typed, "yaml": str(as_yaml), "json": as_json, "folder": own_run}
    before = times(own_run)
    assert endtask.run(forms[form]).folder == own_run  # type: ignore[arg-type]
    assert times(own_run) == before


def test_a_copied_run_leaves_the_original_alone(finished_run: Path, own_run: Path) -> None:
    before = hashes(finished_run)
    endtask.run(own_run, start="evaluate")
    assert (own_run / "previous" / "evaluate").is_dir()
    assert hashes(finished_run) == before


def test_a_run_names_the_files_it_does_not_read(toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(toy, tmp_path / "toy")
    for folder in ("task", "pile"):
        (tmp_path / "toy" / folder).mkdir(exist_ok=True)
        (tmp_path / "toy" / folder / "read.me").write_text("")
    shutil.copy(toy / "corpus.jsonl", tmp_path / "toy" / "pile")
    settings = toy_settings(
        tmp_path / "toy", tmp_path / "run", corpus={"sources": [{"path": str(tmp_path / "toy" / "pile")}]}
    )
    endtask.run(settings, until="read")
    lines = capsys.readouterr().err.splitlines()
    assert f"note: 1 file of {tmp_path / 'toy' / 'pile'} not read, of no known format: read.me" in lines
    assert "note: 1 file or folder of task not read, named after no split: read.me" in lines


def test_until_stops_after_a_stage_and_a_later_call_goes_on(toy: Path, tmp_path: Path, finished_run: Path) -> None:
    settings = toy_settings(toy, tmp_path / "run")
    result = endtask.run(settings, until="select")
    assert list(result.stages) == ["read", "retrieve", "select"]
    assert result.score is None
    assert (tmp_path / "run" / "report.html").exists()
    before = hashes(tmp_path / "run" / "select")
    endtask.run(settings)
    assert hashes(tmp_path / "run" / "select") == before
    assert results(tmp_path / "run") == results(finished_run)


def refusing(stage: str, error: InputError, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a stage begin its work and then find a reason not to."""

    def work(data: Any, folder: StageFolder, stages: Any) -> dict[str, Any]:
        (folder.start() / "begun").write_text("something", encoding="utf-8")
        raise error

    monkeypatch.setattr(ALL_STAGES[stage], "run", work)


@pytest.mark.parametrize("stage", ["select", "finetune"])
def test_a_redo_that_is_refused_leaves_all_as_it_was(
    toy: Path, own_run: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    shutil.rmtree(own_run / "model")
    shutil.copytree(own_run / "evaluate", own_run / "model.partial")  # a later stage that was begun with decisions
    begun = own_run / "model.partial" / "manifest.json"
    begun.write_text(json.dumps({**json.loads(begun.read_text()), "status": "running", "plan": {"steps": 3}}))
    before, log = hashes(own_run), (own_run / "run.log").read_bytes()
    changed = toy_settings(toy, own_run)
    changed[stage] = {**changed[stage], **{"select": {"budget": "40%"}, "finetune": {"learning_rate": 0.01}}[stage]}
    refusing(stage, InputError("costs too much"), monkeypatch)
    with pytest.raises(InputError, match="costs too much"):
        endtask.run(changed, start=stage)
    assert (own_run / "run.log").read_text(encoding="utf-8").endswith(" stopped: costs too much\n")
    (own_run / "run.log").write_bytes(log)
    assert hashes(own_run) == before
    assert not (own_run / "previous").exists()
    assert not (own_run / f"{stage}.partial").exists()


def test_a_redo_that_breaks_in_training_or_later_stays_where_it_is(
    toy: Path, own_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = toy_settings(toy, own_run)
    changed["finetune"] = {**changed["finetune"], "learning_rate": 0.01}
    with monkeypatch.context() as patch:
        refusing("finetune", TrainingError("the loss was not finite"), patch)
        with pytest.raises(TrainingError):
            endtask.run(changed, start="finetune")
    assert (own_run / "finetune.partial" / "begun").exists()
    refusing("evaluate", InputError("no"), monkeypatch)
    with pytest.raises(InputError, match="no"):
        endtask.run(changed)
    assert (own_run / "finetune").is_dir()
    assert (own_run / "previous" / "finetune").is_dir()


def test_from_redoes_and_keeps_the_old(toy: Path, own_run: Path, finished_run: Path) -> None:
    kept = times(own_run)
    changed = toy_settings(toy, own_run)
    changed["finetune"] = {**changed["finetune"], "learning_rate": 0.01}
    endtask.run(changed, start="finetune")
    for stage in ("finetune", "evaluate", "model"):
        assert hashes(own_run / "previous" / stage) == hashes(finished_run / stage)
        assert hashes(own_run / stage) != hashes(finished_run / stage)
    assert not (own_run / "previous" / "pretrain").exists()
    assert all(kept[name] == time for name, time in times(own_run).items() if "/pretrain/" in name or "/pack/" in name)
    endtask.run(toy_settings(toy, own_run), start="finetune")  # over what the first redo kept
    assert results(own_run) == results(finished_run)


def test_a_redo_that_was_never_finished_does_not_replace_the_last_result(
    toy: Path, own_run: Path, finished_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second, third = toy_settings(toy, own_run), toy_settings(toy, own_run)
    for settings, rate in ((second, 0.01), (third, 0.02)):
        settings["finetune"] = {**settings["finetune"], "learning_rate": rate}
    endtask.run(second, start="finetune", until="finetune")
    before = hashes(own_run)
    with monkeypatch.context() as patch:
        refusing("finetune", InputError("costs too much"), patch)
        with pytest.raises(InputError, match="costs too much"):
            endtask.run(third, start="finetune")
    assert {**hashes(own_run), "run.log": ""} == {**before, "run.log": ""}
    endtask.run(third, start="finetune")
    for stage in ("finetune", "evaluate", "model"):
        assert hashes(own_run / "previous" / stage) == hashes(finished_run / stage)
    assert {path.name for path in own_run.glob("previous/*")} == {"finetune", "evaluate", "model"}
    assert not (own_run / ".unfinished").exists()
    finished = hashes(own_run / "model")
    endtask.run(second, start="finetune")
    assert hashes(own_run / "previous" / "model") == finished != hashes(finished_run / "model")


def test_a_dry_run_writes_nothing(toy: Path, own_run: Path, tmp_path: Path) -> None:
    Run(resolve(toy_settings(toy, tmp_path / "new"))).plan()
    assert not (tmp_path / "new").exists()
    shutil.rmtree(own_run / "model")
    (own_run / "evaluate").rename(own_run / "evaluate.partial")  # killed before the rename
    before = hashes(own_run)
    plan = dict(Run(resolve(toy_settings(toy, own_run))).plan(start="pretrain", until="evaluate"))
    assert hashes(own_run) == before
    assert plan == {
        **dict.fromkeys(("read", "retrieve", "select", "pack"), "finished"),
        **dict.fromkeys(("pretrain", "finetune"), "is redone"),
        "evaluate": "resumes where it stopped",
    }


CHANGES = {
    "budget": ({"budget": "8steps"}, "budget (6steps -> 8steps)", "pretrain"),
    "top_k": ({"retrieve": {"top_k": 7}}, "retrieve.top_k (5 -> 7)", "retrieve"),
    "seed": ({"seed": 3}, "seed (0 -> 3)", "read"),
    "train_seed": (
        {"pretrain": {"max_length": 16, "batch_size": 8, "checkpoint_steps": 2, "seed": 4}},
        "pretrain.seed (null -> 4)",
        "pretrain",
    ),
    "metric": ({"evaluate": {"metric": "accuracy"}}, "evaluate.metric (auto -> accuracy)", "finetune"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_settings_are_refused(toy: Path, own_run: Path, change: str) -> None:
    changed, said, stage = CHANGES[change]
    before = hashes(own_run)
    with pytest.raises(InputError) as caught:
        endtask.run(toy_settings(toy, own_run, **changed))
    assert said in str(caught.value)
    assert f"--from {stage}" in str(caught.value)
    assert str(own_run) in str(caught.value)
    assert hashes(own_run) == before


def test_from_a_later_stage_does_not_let_an_earlier_change_pass(toy: Path, own_run: Path) -> None:
    before = hashes(own_run)
    with pytest.raises(InputError, match="redo with --from retrieve"):
        endtask.run(toy_settings(toy, own_run, retrieve={"top_k": 7}), start="pretrain")
    assert hashes(own_run) == before


@pytest.mark.parametrize(("kind", "stage"), [("task", "read"), ("corpus", "retrieve")])
def test_changed_files_are_refused_until_redone(tmp_path: Path, kind: str, stage: str) -> None:
    data, out = write_toy(tmp_path / "data"), tmp_path / "run"
    settings = toy_settings(data, out)
    endtask.run(settings, until="select")
    file = data / "task" / "train.jsonl" if kind == "task" else data / "corpus.jsonl"
    file.write_text(file.read_text() + '{"text": "salt soup one more", "label": "food"}\n')
    before = hashes(out)
    with pytest.raises(InputError, match=rf"the files of the {kind} \(.*\) changed since .*--from {stage}"):
        endtask.run(settings, until="select")
    assert hashes(out) == before
    result = endtask.run(settings, until="select", start=stage)
    counts = result.stages["read"]["train"], result.stages["retrieve"]["corpus"]["passages"]
    assert counts == ((61, 200) if kind == "task" else (60, 201))
    assert (out / "previous" / stage).is_dir()


def test_another_tokenizer_in_the_same_folder_is_noticed(toy: Path, finished_run: Path, tmp_path: Path) -> None:
    tokenizer = Path(shutil.copytree(finished_run / "pack" / "tokenizer", tmp_path / "tokenizer"))
    settings = toy_settings(toy, tmp_path / "run", tokenizer={"path": str(tokenizer)})
    endtask.run(settings, until="pack")
    config = tokenizer / "tokenizer_config.json"
    config.write_text(config.read_text() + "\n")
    with pytest.raises(InputError, match=r"the files of the tokenizer .* changed"):
        endtask.run(settings, until="pack")


def test_a_mended_corpus_needs_no_redo(tmp_path: Path) -> None:
    data, out = write_toy(tmp_path / "data"), tmp_path / "run"
    corpus = data / "corpus.jsonl"
    good = corpus.read_text()
    corpus.write_text(good + "not JSON\n")
    with pytest.raises(InputError, match=r"corpus\.jsonl, row 201: not valid JSON"):
        endtask.run(toy_settings(data, out))
    assert not (out / "retrieve").exists()
    corpus.write_text(good)
    assert endtask.run(toy_settings(data, out), until="retrieve").stages["retrieve"]["corpus"]["passages"] == 200


def test_half_a_training_stage_is_not_thrown_away(toy: Path, own_run: Path) -> None:
    for stage in ("finetune", "evaluate", "model"):
        shutil.rmtree(own_run / stage)
    (own_run / "pretrain").rename(own_run / "pretrain.partial")
    partial = own_run / "pretrain.partial"
    write_manifest(partial, {**json.loads((partial / "manifest.json").read_text()), "status": "running"})
    before = hashes(own_run)
    with pytest.raises(InputError, match=r"budget \(6steps -> 8steps\)"):
        endtask.run(toy_settings(toy, own_run, budget="8steps"))
    assert hashes(own_run) == before


def test_a_second_process_is_refused(toy: Path, own_run: Path) -> None:
    with run_lock(own_run), pytest.raises(InputError) as caught:  # the lock belongs to an open file, not to a process
        endtask.run(toy_settings(toy, own_run))
    assert f"another process works on this run (process {os.getpid()})" in str(caught.value)


def test_unknown_stages_and_impossible_orders(toy: Path, tmp_path: Path) -> None:
    settings = toy_settings(toy, tmp_path / "run")
    with pytest.raises(InputError, match=r"unknown stage 'finetun' .*'finetune'"):
        endtask.run(settings, until="finetun")
    with pytest.raises(InputError, match=r"unknown stage 'pretain' .*'pretrain'"):
        endtask.run(settings, start="pretain")
    with pytest.raises(InputError, match="pretrain, comes after the last stage, select"):
        endtask.run(settings, start="pretrain", until="select")
    assert not (tmp_path / "run").exists()


def test_a_folder_with_other_things_is_left_alone(toy: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "home" / "thesis.jsonl", [{"text": "years of work"}])
    before = hashes(tmp_path / "home")
    with pytest.raises(InputError, match=r"has other files \(thesis.jsonl\)"):
        endtask.run(toy_settings(toy, tmp_path / "home"))
    assert hashes(tmp_path / "home") == before


def test_what_training_would_trip_over_is_met_first(toy: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="num_attention_heads"):
        endtask.run(toy_settings(toy, tmp_path / "run", model={"hidden_size": 17, "num_attention_heads": 2}))
    with pytest.raises(InputError, match="no such tokenizer folder"):
        endtask.run(toy_settings(toy, tmp_path / "run", tokenizer={"path": str(tmp_path / "absent")}))
    assert not (tmp_path / "run").exists()


def test_a_broken_manifest_is_one_line(toy: Path, own_run: Path) -> None:
    (own_run / "pack" / "manifest.json").write_text("{")
    with pytest.raises(InputError, match=r"pack/manifest.json: damaged: not a manifest"):
        endtask.run(toy_settings(toy, own_run))


def test_without_a_corpus(finished_pair_run: Path) -> None:
    assert manifest(finished_pair_run, "select")["counts"]["passages"] == 0
    assert manifest(finished_pair_run, "evaluate")["counts"]["rows"] == 18


@pytest.mark.parametrize("missing", ["output_dir", "task"])
def test_the_two_things_a_run_needs(toy: Path, tmp_path: Path, missing: str) -> None:
    settings = toy_settings(toy, tmp_path / "run")
    del settings[missing]
    with pytest.raises(InputError, match=f"key '{missing}"):
        endtask.run(settings)


def test_on_a_selection_from_elsewhere_and_no_corpus(toy: Path, finished_run: Path, tmp_path: Path) -> None:
    from endtask.selectors.export import export_selection

    export_selection(finished_run, tmp_path / "mine.jsonl")
    select = {"name": "imported", "path": str(tmp_path / "mine.jsonl"), "budget": None}
    result = endtask.run(toy_settings(toy, tmp_path / "run", corpus={"sources": []}, select=select))
    assert list(result.stages) == list(STAGES)
    assert result.stages["select"]["rows"] == manifest(finished_run, "select")["counts"]["passages"]
    expected = results(finished_run)
    del expected["model/README.md"]  # it says where the texts came from
    assert expected.items() <= results(tmp_path / "run").items(), "the same texts train the same model"
    page = (tmp_path / "run" / "report.html").read_text()
    assert "came from an imported selection" in page
    assert "without a corpus" not in page
    assert "0% of the bytes" not in page
    (tmp_path / "mine.jsonl").write_text('{"text": "another text"}\n')
    with pytest.raises(InputError, match=r"the files of the selection .*mine\.jsonl\) changed .*--from select"):
        endtask.run(tmp_path / "run")


def test_on_a_random_selection(toy: Path, tmp_path: Path) -> None:
    select = {"name": "random", "budget": "20%"}
    result = endtask.run(toy_settings(toy, tmp_path / "run", select=select))
    assert list(result.stages) == list(STAGES)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "selected without queries" in page
    assert "random: draw 1 of seed 0</p>" in page
    assert "matched by" not in page
