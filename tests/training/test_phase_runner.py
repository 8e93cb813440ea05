"""A phase in its folder: stopped anywhere and restarted, it ends like an uninterrupted one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from endtask.encoders.device_context import DeviceContext
from endtask.encoders.weights import load_tensors, save_tensors, write_safetensors
from endtask.errors import InputError, TrainingError
from endtask.io.atomic import write_json
from endtask.objectives.base import Loss
from endtask.training import phase_runner as phase_run_module
from endtask.training.checkpoint import CHECKPOINT, CHECKPOINT_BEFORE
from endtask.training.loop import build_optimizer, train
from endtask.training.metrics_file import read_metrics
from endtask.training.phase import Phase
from endtask.training.phase_runner import Callback, TrainState, run_phase
from endtask.weighting.equal import Equal
from endtask.weighting.interleave import Interleave

from .conftest import MakePhase
from .numbers import Learned, number_phase

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


class Killed(BaseException):
    """Stands for the end of the process."""


def weights_of(network: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().cpu().clone() for name, value in network.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(value.equal(other[name]) for name, value in one.items())


def score(phase: Phase) -> Callable[[int, TrainState], dict[str, float]]:
    """A pause that reads the weights, adds a value to the state and leaves the network in evaluation mode."""

    def work(step: int, state: TrainState) -> dict[str, float]:
        phase.network.eval()
        value = float(next(iter(phase.network.parameters())).detach().abs().sum())
        state.setdefault("scores", []).append(value)
        return {"dev/score": value}

    return work


def go(phase: Phase, folder: Path, **options: Any) -> TrainState:
    return run_phase(phase, folder, label="test", **{"callback": Callback(4, score(phase)), **options})


def kept_step(folder: Path) -> int:
    """The step of the checkpoint on disk."""
    step: int = load_tensors(folder / CHECKPOINT)[1]["step"]
    return step


def stop_after(count: int) -> Callable[[], None]:
    """Ends the process at the `count`-th checkpoint."""
    seen = []

    def on_checkpoint() -> None:
        seen.append(None)
        if len(seen) == count:
            raise Killed

    return on_checkpoint


def check_resume(make: Callable[[], Phase], folder: Path, counts: range) -> None:
    """Stop at each of several checkpoints and go on: same weights, same optimizer, same state, same curves."""
    unbroken = make()
    state = go(unbroken, folder / "unbroken")
    last, _ = load_tensors(folder / "unbroken" / CHECKPOINT)
    curves = (folder / "unbroken" / "metrics.jsonl").read_text()
    for count in counts:
        context = folder / f"stopped-{count}"
        with pytest.raises(Killed):
            go(make(), context, on_checkpoint=stop_after(count))
        resumed = make()
        assert go(resumed, context) == state
        assert same(weights_of(resumed.network), weights_of(unbroken.network)), count
        assert same(load_tensors(context / CHECKPOINT)[0], last), count
        assert (context / "metrics.jsonl").read_text() == curves


@pytest.mark.parametrize("architecture", ["lean", "bert"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_phase_stopped_at_any_checkpoint_ends_with_the_same_bits(
    make_phase: MakePhase, tmp_path: Path, architecture: str, device: str
) -> None:
    context = DeviceContext(torch.device(device))

    def make() -> Phase:
        phase = make_phase(architecture, steps=8, context=context, checkpoint_steps=3)
        phase.network.to(context.device)
        return phase

    check_resume(make, tmp_path, range(1, 5))  # checkpoints after steps 3, 4, 6, 8


@pytest.mark.parametrize(
    "changes",
    [
        {"weighting": Equal("sum", "first", weights=(3, 1))},
        {"weighting": Interleave("sum", "first", rho1=2)},
        {"accumulation": 3, "ramp_fraction": 0.6},
        {"lr_scheduler_type": "cosine"},
        {"max_grad_norm": None, "checkpoint_steps": 1},
    ],
    ids=["equal", "interleave", "accumulation", "cosine", "every step"],
)
def test_resuming_is_exact_whatever_is_trained(tmp_path: Path, changes: dict[str, Any]) -> None:
    check_resume(lambda: number_phase(**changes), tmp_path, range(1, 7))


def test_a_weighting_that_learns_is_resumed_exactly(tmp_path: Path) -> None:
    check_resume(lambda: number_phase(weighting=Learned()), tmp_path, range(1, 7))
    tensors, _ = load_tensors(tmp_path / "unbroken" / CHECKPOINT)
    assert tensors["weighting/sum"] != 0.7 or tensors["weighting/first"] != 0.3


class Turned:
    """A refresh hook that turns the sign of one regression's numbers, as often as it has been called."""

    steps = 4

    def __init__(self) -> None:
        self.sign, self.made = torch.tensor(1.0), []

    def apply(self, step: int, state: TrainState) -> dict[str, float]:
        self.sign = -self.sign
        state["refreshed"] = [*state.get("refreshed", []), step]
        return {"refreshed/sign": float(self.sign)}

    def state(self) -> dict[str, Tensor]:
        return {"sign": self.sign}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.sign = state["sign"].clone()


def turned_phase(**changes: Any) -> Phase:
    refresh = Turned()
    phase = number_phase(refresh=refresh, **changes)
    objective = phase.objectives["sum"]
    original = objective.batch

    def batch(step: int) -> Any:
        refresh.made.append((step, float(refresh.sign)))
        return replace(found := original(step), inputs=refresh.sign * found.inputs)  # type: ignore[type-var, attr-defined]

    objective.batch = batch  # type: ignore[method-assign]
    return phase


def test_a_refresh_is_resumed_exactly_and_no_batch_is_made_across_it(tmp_path: Path) -> None:
    check_resume(turned_phase, tmp_path, range(1, 6))  # checkpoints after steps 3, 4, 6, 8, 9
    phase = turned_phase()
    state = go(phase, tmp_path / "once more")
    assert state["refreshed"] == [4, 8], "not after the last step"
    signs = {0: 1.0, 1: -1.0, 2: 1.0}
    assert phase.refresh.made == [(step, signs[step // 4]) for step in range(12)]  # type: ignore[union-attr]
    tensors, _ = load_tensors(tmp_path / "once more" / CHECKPOINT)
    assert tensors["refresh/sign"] == 1.0


@pytest.mark.parametrize("stop", [2, 4, 6])
def test_a_phase_stopped_between_checkpoints_goes_back_to_the_last_one(
    make_phase: MakePhase, tmp_path: Path, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbroken = make_phase(steps=7, checkpoint_steps=3)
    go(unbroken, tmp_path / "unbroken", callback=None)
    killed = make_phase(steps=7, checkpoint_steps=3)
    objective = killed.objectives["task"]
    original, schedule = objective.loss, []

    def loss(network: Any, batch: Any) -> Loss:
        schedule.append(None)
        if len(schedule) * 2 == stop:  # task batches come at every second step
            raise Killed
        return original(network, batch)

    monkeypatch.setattr(objective, "loss", loss)
    with pytest.raises(Killed):
        go(killed, tmp_path / "killed", callback=None)
    assert kept_step(tmp_path / "killed") == {2: 0, 4: 3, 6: 3}[stop]
    resumed = make_phase(steps=7, checkpoint_steps=3)
    go(resumed, tmp_path / "killed", callback=None)
    assert same(weights_of(resumed.network), weights_of(unbroken.network))
    rows = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("killed", "unbroken")]
    assert rows[0] == rows[1]


def test_a_phase_killed_while_it_saves_keeps_the_older_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbroken = number_phase(checkpoint_steps=2)
    go(unbroken, tmp_path / "unbroken")
    saves = []

    def save_and_die(*arguments: Any, **options: Any) -> None:
        saves.append(None)
        write_safetensors(*arguments, **options)
        if len(saves) == 3:  # after steps 0 and 2
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("endtask.training.checkpoint.write_safetensors", save_and_die)
        with pytest.raises(Killed):
            go(number_phase(checkpoint_steps=2), tmp_path / "killed")
    assert kept_step(tmp_path / "killed") == 2
    resumed = number_phase(checkpoint_steps=2)
    go(resumed, tmp_path / "killed")
    assert same(weights_of(resumed.network), weights_of(unbroken.network))


def test_a_checkpoint_that_cannot_be_written_ends_the_phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("endtask.training.checkpoint.write_safetensors", full)
    phase = number_phase()
    with pytest.raises(OSError, match="No space left on device"):
        go(phase, tmp_path)


def test_a_finished_phase_does_nothing_more(tmp_path: Path) -> None:
    first = number_phase()
    state = go(first, tmp_path)
    curves = (tmp_path / "metrics.jsonl").read_text()
    again = number_phase()
    assert go(again, tmp_path) == state
    assert same(weights_of(again.network), weights_of(first.network))
    assert (tmp_path / "metrics.jsonl").read_text() == curves


def test_pauses_come_at_their_steps_and_after_the_last_and_change_nothing(tmp_path: Path) -> None:
    paused, plain = number_phase(steps=7), number_phase(steps=7)
    state = go(paused, tmp_path / "paused", callback=Callback(3, score(paused)))
    go(plain, tmp_path / "plain", callback=None)
    rows = read_metrics(tmp_path / "paused" / "metrics.jsonl")
    assert [row["step"] for row in rows if "dev/score" in row] == [3, 6, 7]
    assert [row["dev/score"] for row in rows if "dev/score" in row] == state["scores"]
    assert same(weights_of(paused.network), weights_of(plain.network))


def test_the_memory_counts_what_was_done(make_phase: MakePhase, tmp_path: Path) -> None:
    phase, other = make_phase("bert"), make_phase("bert")
    state = go(phase, tmp_path, callback=None)
    records = list(train(other, build_optimizer(other)))
    assert state == {
        "steps": 6,
        "tokens": sum(record.tokens for record in records),
        "padded_tokens": sum(record.padded_tokens for record in records),
        "matmul_flops": sum(record.flops for record in records),
        "objectives": state["objectives"],
    }
    assert {name: counts["steps"] for name, counts in state["objectives"].items()} == {"corpus": 3, "task": 3}
    for name in ("tokens", "matmul_flops"):
        assert sum(counts[name] for counts in state["objectives"].values()) == pytest.approx(state[name])
    assert state["padded_tokens"] > state["tokens"] > 0


def test_curves_have_a_few_hundred_rows_at_most(tmp_path: Path) -> None:
    phase = number_phase(steps=402, checkpoint_steps=1000)
    go(phase, tmp_path, callback=None)
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == [*range(2, 403, 2)]
    assert all(row.keys() == {"step", "learning_rate", "sum/error", "first/error", "grad_norm"} for row in rows)


def test_rows_that_stand_between_checkpoints_are_resumed_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row every four steps, a checkpoint every seven: a mean never spans a checkpoint."""
    monkeypatch.setattr("endtask.training.phase_runner._LOGGED_ROWS", 10)
    unbroken, killed, resumed = (number_phase(steps=40, checkpoint_steps=7) for _ in range(3))
    go(unbroken, tmp_path / "unbroken", callback=None)
    with pytest.raises(Killed):
        go(killed, tmp_path / "killed", on_checkpoint=stop_after(2), callback=None)
    go(resumed, tmp_path / "killed", callback=None)
    curves = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("unbroken", "killed")]
    assert curves[0] == curves[1]
    steps = [row["step"] for row in read_metrics(tmp_path / "unbroken" / "metrics.jsonl")]
    assert steps == sorted({*range(4, 41, 4), *range(7, 41, 7)})


class Recording:
    """A tracker that keeps what it is sent."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def log(self, row: dict[str, float]) -> None:
        self.rows.append(dict(row))


def test_trackers_are_sent_every_row_of_the_curves(tmp_path: Path) -> None:
    recording = Recording()
    phase = number_phase()
    go(phase, tmp_path, trackers=recording)
    assert recording.rows == read_metrics(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in recording.rows if "dev/score" in row] == [4, 8, 12]


def stopping_at(step: int) -> Callback:
    def work(now: int, state: TrainState) -> dict[str, float]:
        if now == step:
            state["stop"] = True
        return {"dev/score": float(now)}

    return Callback(2, work)


def test_a_pause_may_end_the_phase(tmp_path: Path) -> None:
    phase = number_phase()
    state = go(phase, tmp_path, callback=stopping_at(6))
    assert (state["steps"], state["stop"], state["tokens"]) == (6, True, 6 * 8)
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert rows[-1] == {"step": 6, "dev/score": 6.0}
    plain = number_phase()
    optimizer = build_optimizer(plain)
    for record in train(plain, optimizer):
        if record.step == 6:
            break
    assert same(weights_of(plain.network), weights_of(phase.network))


def test_a_phase_that_was_ended_does_not_go_on(tmp_path: Path) -> None:
    first = number_phase()
    state = go(first, tmp_path, callback=stopping_at(6))
    again = number_phase()
    assert go(again, tmp_path, callback=stopping_at(0)) == state
    assert same(weights_of(again.network), weights_of(first.network))


def test_a_phase_killed_before_it_was_ended_ends_there_too(tmp_path: Path) -> None:
    unbroken = number_phase()
    expected = go(unbroken, tmp_path / "unbroken", callback=stopping_at(6))
    with pytest.raises(Killed):
        go(number_phase(), tmp_path / "killed", callback=stopping_at(6), on_checkpoint=stop_after(2))  # steps 2 and 3
    resumed = number_phase()
    assert go(resumed, tmp_path / "killed", callback=stopping_at(6)) == expected
    assert same(weights_of(resumed.network), weights_of(unbroken.network))


def keeping(folder: Path) -> Callback:
    """A pause that finds something at every second step, and writes it when asked to."""

    def work(step: int, state: TrainState) -> dict[str, float]:
        state["found"] = step
        return {}

    return Callback(2, work, on_save=lambda state: write_json(folder / "found.json", state["found"]))


def test_what_a_pause_has_found_is_on_disk_with_every_checkpoint_and_at_the_end(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        go(number_phase(), tmp_path, callback=keeping(tmp_path), on_checkpoint=stop_after(3))  # steps 2, 3 and 4
    assert json.loads((tmp_path / "found.json").read_text()) == 4
    go(number_phase(), tmp_path, callback=keeping(tmp_path))
    assert json.loads((tmp_path / "found.json").read_text()) == 12


def test_where_pauses_come_fast_not_all_of_them_are_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: what is on disk is that of the last checkpoint until the end, and a killed run ends the same."""
    monkeypatch.setattr(phase_run_module._Trainer, "_is_checkpoint_due", lambda self: False)
    unbroken = number_phase(steps=13, checkpoint_steps=5)
    expected = go(unbroken, tmp_path / "unbroken", callback=keeping(tmp_path / "unbroken"))
    assert kept_step(tmp_path / "unbroken") == 10
    assert json.loads((tmp_path / "unbroken" / "found.json").read_text()) == 13
    killed = tmp_path / "killed"
    with pytest.raises(Killed):
        go(number_phase(steps=13, checkpoint_steps=5), killed, callback=keeping(killed), on_checkpoint=stop_after(2))
    assert json.loads((killed / "found.json").read_text()) == 10
    resumed = number_phase(steps=13, checkpoint_steps=5)
    assert go(resumed, killed, callback=keeping(killed)) == expected
    assert same(weights_of(resumed.network), weights_of(unbroken.network))
    assert (killed / "metrics.jsonl").read_text() == (tmp_path / "unbroken" / "metrics.jsonl").read_text()


class Trouble:
    """Makes the loss of a phase NaN while a condition holds; the condition sees how often it was computed."""

    def __init__(self, phase: Phase, holds: Callable[[int], bool]) -> None:
        objective = phase.objectives["sum"]
        original = objective.loss
        self.calls = 0

        def loss(network: Any, batch: Any) -> Loss:
            self.calls += 1
            found = original(network, batch)
            return Loss(found.total * float("nan"), found.parts) if holds(self.calls) else found

        objective.loss = loss  # type: ignore[method-assign]


def test_a_step_whose_loss_is_not_finite_is_skipped_and_counted(tmp_path: Path) -> None:
    phase, plain = number_phase(), number_phase()
    Trouble(phase, lambda call: call == 5)
    recording = Recording()
    state = go(phase, tmp_path, callback=None, trackers=recording)
    assert state["skipped_steps"] == 1
    assert state["steps"] == 12
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert [row.get("skipped_steps", 0) for row in rows] == [0] * 4 + [1] * 8
    assert recording.rows == rows
    assert "grad_norm" not in rows[4]
    assert all(value.isfinite().all() for value in weights_of(phase.network).values())
    optimizer = build_optimizer(plain)
    for record in train(plain, optimizer):
        if record.step == 4:
            break
    list(train(plain, optimizer, start=5))  # the same steps, the fifth left out
    assert same(weights_of(plain.network), weights_of(phase.network))


def test_a_phase_with_a_skipped_step_is_resumed_exactly(tmp_path: Path) -> None:
    def make(done: int = 0) -> Phase:
        phase = number_phase()
        Trouble(phase, lambda call: call + done == 5)
        return phase

    unbroken = make()
    state = go(unbroken, tmp_path / "unbroken")
    with pytest.raises(Killed):
        go(make(), tmp_path / "killed", on_checkpoint=stop_after(3))
    assert kept_step(tmp_path / "killed") == 6
    resumed = make(done=6)
    assert go(resumed, tmp_path / "killed") == state
    assert state["skipped_steps"] == 1
    assert same(weights_of(resumed.network), weights_of(unbroken.network))


def rates(folder: Path) -> list[float]:
    return [row["learning_rate"] for row in read_metrics(folder / "metrics.jsonl")]


CONSTANT = {"lr_scheduler_type": "constant", "warmup_steps": 0}


def test_after_too_many_in_a_row_training_goes_back_with_half_the_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    phase = number_phase(**CONSTANT)
    trouble = Trouble(phase, lambda call: 8 <= call < 11)  # steps 8, 9 and 10, the first time
    state = go(phase, tmp_path, callback=None, max_skipped_steps=3)
    assert trouble.calls == 10 + 6  # back to step 6
    assert (
        "test: the loss is no longer finite from step 8 on; back to step 6 with half the learning rate"
        in capsys.readouterr().err
    )
    assert rates(tmp_path) == pytest.approx([0.01] * 6 + [0.005] * 6)
    assert state.pop("objectives")["sum"] == {"steps": 12, "tokens": 48, "matmul_flops": 4800.0}
    assert state == {"steps": 12, "tokens": 96, "padded_tokens": 96, "matmul_flops": 9600.0, "rate_halvings": 1}
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == list(range(1, 13))
    by_hand = number_phase(**CONSTANT)
    optimizer = build_optimizer(by_hand)
    for record in train(by_hand, optimizer):
        if record.step == 6:
            break
    optimizer.scale_rate(0.5)
    list(train(by_hand, optimizer, start=6))
    assert same(weights_of(by_hand.network), weights_of(phase.network))


def test_fewer_in_a_row_are_let_pass(tmp_path: Path) -> None:
    phase = number_phase(steps=20)
    Trouble(phase, lambda call: call % 4 in (1, 2))
    state = go(phase, tmp_path, callback=None, max_skipped_steps=3)
    assert (state["skipped_steps"], state["steps"]) == (10, 20)
    assert "rate_halvings" not in state


def test_each_return_halves_the_rate_wherever_it_goes_back_to(tmp_path: Path) -> None:
    """The second trouble comes after a checkpoint that already has half the rate."""
    phase = number_phase(**CONSTANT)
    Trouble(phase, lambda call: 5 <= call < 7 or 13 <= call < 15)  # steps 5, 6; after 3 + 3 more, 10 and 11
    state = go(phase, tmp_path, callback=None, max_skipped_steps=2)
    assert state["rate_halvings"] == 2
    assert rates(tmp_path) == pytest.approx([0.01] * 3 + [0.005] * 6 + [0.0025] * 3)


def test_trouble_that_lasts_ends_in_one_line(tmp_path: Path) -> None:
    phase = number_phase()
    trouble = Trouble(phase, lambda call: call > 4)
    with pytest.raises(TrainingError) as raised:
        go(phase, tmp_path, callback=None, max_skipped_steps=3)
    assert isinstance(raised.value, InputError)
    assert str(raised.value) == (
        "test: from step 4 on the loss was not finite 3 steps in a row, and again 3 times after going back with half "
        "the rate; that step's batch: number 3 of sum; number 3 of first (lower learning_rate, now 0.01, or raise "
        "warmup_steps; if the same batch fails at any rate, look at its texts)"
    )
    assert trouble.calls == 7 + 3 * 3  # back to step 3 each time
    assert kept_step(tmp_path) == 3
    again = number_phase()
    Trouble(again, lambda call: True)
    with pytest.raises(TrainingError):
        go(again, tmp_path, callback=None, max_skipped_steps=3)


def test_a_phase_killed_after_going_back_goes_on_with_half_the_rate(tmp_path: Path) -> None:
    unbroken = number_phase(**CONSTANT)
    Trouble(unbroken, lambda call: 8 <= call < 11)
    expected = go(unbroken, tmp_path / "unbroken", callback=None, max_skipped_steps=3)
    killed = number_phase(**CONSTANT)

    def holds(call: int) -> bool:
        if call == 12:  # the second step after going back
            raise Killed
        return 8 <= call < 11

    Trouble(killed, holds)
    with pytest.raises(Killed):
        go(killed, tmp_path / "killed", callback=None, max_skipped_steps=3)
    resumed = number_phase(**CONSTANT)
    assert go(resumed, tmp_path / "killed", callback=None, max_skipped_steps=3) == expected
    assert same(weights_of(resumed.network), weights_of(unbroken.network))


def test_no_checkpoint_is_made_of_weights_without_a_finite_loss(tmp_path: Path) -> None:
    """The trouble begins just before a checkpoint is due; to go back there would help nobody."""
    phase = number_phase(steps=9, **CONSTANT)
    trouble = Trouble(phase, lambda call: 6 <= call < 9)
    state = go(phase, tmp_path, callback=None, max_skipped_steps=3)
    assert trouble.calls == 8 + 6  # back to step 3, not 6
    assert state["rate_halvings"] == 1


def test_going_back_begins_a_new_count(tmp_path: Path) -> None:
    """A pause in the middle of the trouble leaves nothing to go back to; it is done again."""
    phase = number_phase(**CONSTANT)
    trouble = Trouble(phase, lambda call: 4 <= call < 9)
    state = go(phase, tmp_path, max_skipped_steps=3)
    assert trouble.calls == 6 + 9  # three in a row after step 6, back to step 3, then two more
    assert (state["rate_halvings"], state["skipped_steps"]) == (1, 2)


def test_weights_without_a_finite_loss_are_not_scored(tmp_path: Path) -> None:
    phase = number_phase(steps=9, **CONSTANT)
    Trouble(phase, lambda call: 5 <= call < 7)
    scored: list[int] = []
    callback = Callback(2, lambda step, state: scored.append(step) or {})
    state = go(phase, tmp_path, callback=callback)
    assert scored == [2, 4, 8, 9]  # not 6, the second of two skipped steps
    assert state["skipped_steps"] == 2


@pytest.mark.parametrize(("trouble", "halvings"), [((9, 10), 0), ((8, 10), 1)])
def test_a_phase_does_not_end_in_the_middle_of_trouble(
    tmp_path: Path, trouble: tuple[int, int], halvings: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """One skipped step may be its batch's fault; two at the end, and training goes back."""
    phase = number_phase(steps=9, **CONSTANT)
    Trouble(phase, lambda call: trouble[0] <= call < trouble[1])
    state = go(phase, tmp_path, callback=None)
    assert state.get("rate_halvings", 0) == halvings
    said = "1 of 9 steps had no finite loss" in capsys.readouterr().err
    assert said == (halvings == 0)


def test_trouble_before_the_first_checkpoint_starts_again(tmp_path: Path) -> None:
    phase = number_phase(**CONSTANT)
    Trouble(phase, lambda call: call < 3)
    go(phase, tmp_path, callback=None, max_skipped_steps=2)
    assert rates(tmp_path) == pytest.approx([0.005] * 12)


def test_trouble_between_rare_rows_is_noticed_at_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("endtask.training.phase_runner._LOGGED_ROWS", 20)
    phase = number_phase(steps=60, checkpoint_steps=15, **CONSTANT)  # a row every three steps
    trouble = Trouble(phase, lambda call: 16 < call < 28)
    state = go(phase, tmp_path, callback=None, max_skipped_steps=9)
    assert trouble.calls == 27 + (60 - 15)
    assert state["rate_halvings"] == 1


def test_a_cut_off_checkpoint_can_be_deleted_to_start_over(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        go(number_phase(), tmp_path, on_checkpoint=stop_after(1))
    (tmp_path / CHECKPOINT_BEFORE).unlink()
    path = tmp_path / CHECKPOINT
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"damaged: .*delete it"):
        go(number_phase(), tmp_path)
    path.unlink()
    unbroken, resumed = number_phase(), number_phase()
    go(resumed, tmp_path)
    go(unbroken, tmp_path / "unbroken")
    assert same(weights_of(resumed.network), weights_of(unbroken.network))


def test_a_checkpoint_of_another_network_is_refused(make_phase: MakePhase, tmp_path: Path) -> None:
    save_tensors(tmp_path / CHECKPOINT, {"network/stranger": torch.zeros(2)}, {"step": 1, "state": {}})
    with pytest.raises(InputError, match="does not fit the network"):
        go(make_phase(), tmp_path)
