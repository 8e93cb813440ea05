"""Trackers, with stub libraries that record their calls, and TensorBoard if it is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from endtask.errors import InputError
from endtask.training.loggers import LIBRARIES, Trackers, check_trackers, open_trackers

SETTINGS = {"seed": 0, "pretrain": {"weighting": {"rho1": 19}, "learning_rate": 1e-3}}
Points = list[tuple[int, str, float]]


class FakeLibraries:
    """All four libraries: every point that arrives, the runs that were opened, how they were closed."""

    def __init__(self) -> None:
        self.points: dict[str, Points] = {name: [] for name in LIBRARIES}
        self.opened: dict[str, list[dict[str, Any]]] = {name: [] for name in LIBRARIES}
        self.closed: dict[str, list[Any]] = {name: [] for name in LIBRARIES}
        self.settings: dict[str, dict[str, Any]] = {name: {} for name in LIBRARIES}
        self.broken: set[str] = set()  # "wandb.init", "mlflow.log", "trackio.close", ...

    def check(self, action: str) -> None:
        if action in self.broken:
            raise RuntimeError(f"{action} is down\nand more lines")

    def log(self, tool: str, step: int, values: dict[str, float]) -> None:
        self.check(f"{tool}.log")
        self.points[tool] += [(step, name, value) for name, value in values.items()]

    def open_run(self, tool: str, **options: Any) -> Any:
        self.check(f"{tool}.init")
        print(f"{tool} says hello")
        self.opened[tool].append(options)
        return SimpleNamespace(
            info=SimpleNamespace(run_id=options.get("run_id") or f"run{len(self.opened[tool])}"),
            log=lambda values, step: self.log(tool, step, values),
            finish=lambda exit_code=0: self.close(tool, exit_code),
        )

    def close(self, tool: str, how: Any) -> None:
        self.check(f"{tool}.close")
        self.closed[tool].append(how)

    def store(self, tool: str, values: dict[str, Any]) -> None:
        assert not self.settings[tool].keys() & values.keys(), "sent once"
        self.settings[tool] |= values


class FakeWriter:
    """TensorBoard's writer."""

    def __init__(self, libraries: FakeLibraries, log_dir: str) -> None:
        libraries.open_run("tensorboard", log_dir=log_dir)
        self._libraries, self._waiting = libraries, Points()

    def add_hparams(self, values: dict[str, Any], metric_dict: dict[str, Any]) -> None:
        self._libraries.store("tensorboard", values)

    def add_scalar(self, name: str, value: float, global_step: int) -> None:
        self._waiting.append((global_step, name, value))

    def flush(self) -> None:
        for step, name, value in self._waiting:
            self._libraries.log("tensorboard", step, {name: value})
        self._waiting.clear()

    def close(self) -> None:
        self._libraries.close("tensorboard", 0)


def fake_module(name: str, **members: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(members)
    return module


def fake_runs(fakes: FakeLibraries, name: str) -> ModuleType:
    """W&B or trackio."""
    config = SimpleNamespace(update=lambda values, allow_val_change: fakes.store(name, values))
    return fake_module(name, init=lambda **options: fakes.open_run(name, **options), config=config)


def fake_mlflow(fakes: FakeLibraries) -> ModuleType:
    limits = SimpleNamespace(MAX_PARAM_VAL_LENGTH=500, MAX_PARAMS_TAGS_PER_BATCH=100)
    return fake_module(
        "mlflow",
        search_experiments=lambda filter_string: [],
        create_experiment=lambda name, **_: name,
        start_run=lambda **options: fakes.open_run("mlflow", **options),
        log_params=lambda values: fakes.store("mlflow", values),
        log_metrics=lambda values, step: fakes.log("mlflow", step, values),
        end_run=lambda status="FINISHED": fakes.close("mlflow", status),
        utils=SimpleNamespace(validation=limits),
    )


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> FakeLibraries:
    fakes = FakeLibraries()
    tensorboard = fake_module(
        "torch.utils.tensorboard", SummaryWriter=lambda log_dir, **options: FakeWriter(fakes, log_dir, **options)
    )
    monkeypatch.setattr(torch.utils, "tensorboard", tensorboard, raising=False)
    for module in (tensorboard, fake_runs(fakes, "wandb"), fake_runs(fakes, "trackio"), fake_mlflow(fakes)):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for variable in ("WANDB_PROJECT", "WANDB_DIR", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_ID"):
        monkeypatch.delenv(variable, raising=False)
    return fakes


@pytest.fixture
def open_some(tmp_path: Path) -> Callable[..., Trackers]:
    return lambda *names: open_trackers(names or tuple(LIBRARIES), tmp_path, SETTINGS, "pretrain")


def rows(*steps: int) -> list[dict[str, float]]:
    return [{"step": step, "corpus/masked_lm": 10.0 - step} for step in steps]


EVERY_TRACKER = pytest.mark.parametrize("name", LIBRARIES)


@EVERY_TRACKER
def test_rows_arrive_with_their_step(name: str, libraries: FakeLibraries, open_some: Callable[..., Trackers]) -> None:
    with open_some(name) as trackers:
        trackers.log({"step": 4, "corpus/masked_lm": 6.5, "learning_rate": 1e-3})
        trackers.log({"step": 4, "dev/accuracy": 0.5})
    assert libraries.points[name] == [
        (4, "pretrain/corpus/masked_lm", 6.5),
        (4, "pretrain/learning_rate", 1e-3),
        (4, "pretrain/dev/accuracy", 0.5),
    ]
    assert len(libraries.closed[name]) == 1


def test_all_at_once(libraries: FakeLibraries, open_some: Callable[..., Trackers]) -> None:
    with open_some() as trackers:
        trackers.log({"step": 1, "a": 2.0})
    assert libraries.points == {name: [(1, "pretrain/a", 2.0)] for name in LIBRARIES}


def test_a_name_given_twice_is_opened_once(libraries: FakeLibraries, open_some: Callable[..., Trackers]) -> None:
    open_some("wandb", "wandb").close()
    assert len(libraries.opened["wandb"]) == 1


def test_none_by_default(tmp_path: Path, libraries: FakeLibraries) -> None:
    with open_trackers((), tmp_path, SETTINGS, "pretrain") as trackers:
        trackers.log({"step": 1, "a": 2.0})
    assert list(tmp_path.iterdir()) == []
    assert not any(libraries.opened.values())


def test_no_library_is_imported_unasked() -> None:
    line = "import endtask.training.loggers, sys; print([n for n in ('torch', 'wandb', 'mlflow') if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True).stdout == "[]\n"


@EVERY_TRACKER
def test_settings_are_sent_once(name: str, libraries: FakeLibraries, open_some: Callable[..., Trackers]) -> None:
    for _ in range(2):
        open_some(name).close()
    assert libraries.settings[name] == {"seed": 0, "pretrain.weighting.rho1": 19, "pretrain.learning_rate": 1e-3}


def test_settings_are_sent_later_if_the_first_attempt_failed(
    libraries: FakeLibraries, open_some: Callable[..., Trackers]
) -> None:
    libraries.broken.add("wandb.init")
    open_some("wandb").close()
    libraries.broken.clear()
    open_some("wandb").close()
    assert libraries.settings["wandb"]["seed"] == 0


def test_many_settings_fit_mlflow(tmp_path: Path, libraries: FakeLibraries) -> None:
    many = {f"key{n}": "x" * 400 for n in range(250)}
    open_trackers(["mlflow"], tmp_path, many, "pretrain").close()
    assert libraries.settings["mlflow"] == many


@EVERY_TRACKER
def test_a_resumed_phase_repeats_no_point(
    name: str, libraries: FakeLibraries, open_some: Callable[..., Trackers]
) -> None:
    killed = open_some(name)
    for row in rows(2, 4, 6):
        killed.log(row)
    with open_some(name) as trackers:  # 6 was sent, but the checkpoint is at 4
        trackers.log({"step": 6, "corpus/masked_lm": 4.0})
        trackers.log({"step": 6, "dev/accuracy": 0.5})  # killed before this one was sent
        trackers.log({"step": 8, "corpus/masked_lm": 2.0})
    assert sorted(libraries.points[name]) == [
        (2, "pretrain/corpus/masked_lm", 8.0),
        (4, "pretrain/corpus/masked_lm", 6.0),
        (6, "pretrain/corpus/masked_lm", 4.0),
        (6, "pretrain/dev/accuracy", 0.5),
        (8, "pretrain/corpus/masked_lm", 2.0),
    ]


@EVERY_TRACKER
def test_a_phase_that_goes_back_shows_no_step_twice(
    name: str, libraries: FakeLibraries, open_some: Callable[..., Trackers]
) -> None:
    with open_some(name) as trackers:
        for step, value in ((2, 1.0), (4, 9.0), (6, 99.0), (4, 0.8), (6, 0.6), (8, 0.4)):
            trackers.log({"step": step, "loss": value})
    assert libraries.points[name] == [
        (step, "pretrain/loss", value) for step, value in ((2, 1.0), (4, 9.0), (6, 99.0), (8, 0.4))
    ]


def test_a_resumed_phase_goes_on_in_the_same_run(libraries: FakeLibraries, open_some: Callable[..., Trackers]) -> None:
    for _ in range(2):
        open_some().close()
    for name, key in {"wandb": "id", "trackio": "name"}.items():
        first, second = libraries.opened[name]
        assert (first[key], first["resume"]) == (second[key], "allow")
    assert [options["run_id"] for options in libraries.opened["mlflow"]] == [None, "run1"]
    assert {options["experiment_id"] for options in libraries.opened["mlflow"]} == {"endtask"}


@EVERY_TRACKER
def test_phases_share_a_run_and_count_on(name: str, tmp_path: Path, libraries: FakeLibraries) -> None:
    for phase, steps in (("pretrain", (2, 4)), ("finetune seed 0", (1,)), ("pretrain", (4, 6)), ("test", (0,))):
        with open_trackers([name], tmp_path, SETTINGS, phase) as trackers:
            for step in steps:
                trackers.log({"step": step, "loss": 1.0})
    points = [(step, curve) for step, curve, _ in libraries.points[name]]
    curve = "pretrain/loss"
    assert points == [(2, curve), (4, curve), (5, "finetune-seed-0/loss"), (6, curve), (6, "test/loss")]
    runs = {"wandb": "id", "trackio": "name", "tensorboard": "log_dir"}
    ids = {options[runs[name]] if name in runs else options["run_id"] for options in libraries.opened[name]}
    assert len(ids - {None}) == 1


def test_another_folder_is_another_run(tmp_path: Path, libraries: FakeLibraries) -> None:
    for folder in ("one", "two"):
        open_trackers(["wandb", "trackio"], tmp_path / folder, SETTINGS, "pretrain").close()
    assert len({options["id"] for options in libraries.opened["wandb"]}) == 2
    assert len({options["name"] for options in libraries.opened["trackio"]}) == 2


def test_wandb_takes_curves_and_settings_only(
    tmp_path: Path, libraries: FakeLibraries, open_some: Callable[..., Trackers]
) -> None:
    open_some("wandb").close()
    options = libraries.opened["wandb"][0]
    assert options["settings"] == {"console": "off", "disable_code": True, "disable_git": True}
    assert (options["project"], options["dir"]) == ("endtask", str(tmp_path / "trackers"))
    assert "mode" not in options  # WANDB_MODE, or W&B's own default


def test_the_users_environment_is_respected(
    libraries: FakeLibraries, open_some: Callable[..., Trackers], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    monkeypatch.setenv("WANDB_DIR", "/elsewhere")
    open_some("wandb").close()
    assert [libraries.opened["wandb"][0][key] for key in ("project", "dir")] == ["mine", "/elsewhere"]


@EVERY_TRACKER
@pytest.mark.parametrize("action", ["init", "log", "close"])
def test_a_failing_tracker_is_named_once_and_dropped(
    name: str,
    action: str,
    libraries: FakeLibraries,
    open_some: Callable[..., Trackers],
    capsys: pytest.CaptureFixture[str],
) -> None:
    libraries.broken.add(f"{name}.{action}")
    with open_some() as trackers:
        for row in rows(1, 2):
            trackers.log(row)
    said = [line for line in capsys.readouterr().err.splitlines() if "hello" not in line]
    assert said == [f"{name} gets no more of this phase's curves, training goes on: {name}.{action} is down"]
    for other in LIBRARIES.keys() - {name}:
        assert [step for step, _, _ in libraries.points[other]] == [1, 2]
        assert len(libraries.closed[other]) == 1


def test_a_damaged_memory_costs_that_tracker_only(
    tmp_path: Path,
    libraries: FakeLibraries,
    open_some: Callable[..., Trackers],
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "trackers").mkdir()
    (tmp_path / "trackers" / "wandb.json").write_text("{")
    with open_some("wandb", "trackio") as trackers:
        trackers.log({"step": 1, "a": 2.0})
    assert "wandb gets no more" in capsys.readouterr().err
    assert (libraries.points["wandb"], libraries.points["trackio"]) == ([], [(1, "pretrain/a", 2.0)])


def test_an_error_in_training_goes_through_and_the_runs_count_as_failed(
    libraries: FakeLibraries, open_some: Callable[..., Trackers]
) -> None:
    with pytest.raises(ZeroDivisionError), open_some() as trackers:
        trackers.log({"step": 1, "a": 1 / 0})
    assert (libraries.closed["wandb"], libraries.closed["mlflow"]) == ([1], ["FAILED"])


def test_closing_twice_and_logging_afterwards_do_nothing(
    libraries: FakeLibraries, open_some: Callable[..., Trackers]
) -> None:
    with open_some("wandb") as trackers:
        trackers.close()
        trackers.log({"step": 1, "a": 2.0})
    assert (libraries.closed["wandb"], libraries.points["wandb"]) == ([0], [])


def test_what_libraries_print_is_no_part_of_a_commands_result(
    libraries: FakeLibraries, open_some: Callable[..., Trackers], capsys: pytest.CaptureFixture[str]
) -> None:
    open_some("trackio").close()
    out, err = capsys.readouterr()
    assert (out, err) == ("", "trackio says hello\n")


@EVERY_TRACKER
def test_a_missing_library_names_the_install_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, LIBRARIES[name], None)
    with pytest.raises(InputError, match=rf"key 'report_to': {name} needs .*\(pip install {name}\)$") as caught:
        open_trackers([name], tmp_path, SETTINGS, "pretrain")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_accelerate_is_asked_for_by_the_name_of_the_extra(
    libraries: FakeLibraries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "accelerate.tracking", None)
    with pytest.raises(InputError, match=r"needs the package `accelerate`.*endtask\[trackers\]"):
        check_trackers(["wandb"])


def test_a_library_that_breaks_while_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wandb.py").write_text("raise TypeError('Descriptors cannot be created directly.\\nMore.')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    with pytest.raises(InputError, match=r"cannot be imported: Descriptors cannot be created directly\. \(pip"):
        check_trackers(["wandb"])


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(InputError, match=r"no tracker is called 'tensorbord' \(did you mean 'tensorboard'\?\)"):
        check_trackers(["tensorbord"])


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="TensorBoard is not installed")
def test_tensorboard_itself_shows_a_resumed_phase_once(tmp_path: Path, open_some: Callable[..., Trackers]) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for steps in ((2, 4, 6), (6, 8, 10, 8, 10)):
        with open_some("tensorboard") as trackers:
            for row in rows(*steps):
                trackers.log(row)
    shown = EventAccumulator(str(tmp_path / "trackers" / "tensorboard")).Reload().Scalars("pretrain/corpus/masked_lm")
    assert [(event.step, event.value) for event in shown] == [(2, 8.0), (4, 6.0), (6, 4.0), (8, 2.0), (10, 0.0)]
