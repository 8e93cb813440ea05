"""The training loop against a step written by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from endtask.config import BatchSize
from endtask.encoders.batch import TextBatch, lay_out
from endtask.objectives.base import Loss
from endtask.objectives.stream import TextStream
from endtask.objectives.task_losses import Classification
from endtask.seeds import derive
from endtask.training.loop import StepRecord, build_optimizer, train
from endtask.training.optimizer import StepOutcome
from endtask.training.phase import Phase, schedule_factor
from endtask.weighting.base import ScheduledObjective
from endtask.weighting.equal import Equal
from endtask.weighting.interleave import Interleave
from tests.tiny import make_labels, make_network, make_packed

from .conftest import MakePhase
from .numbers import Learned, Regression, number_phase

ARCHITECTURES = ("lean", "bert")


def run(phase: Phase) -> dict[str, Tensor]:
    for _ in train(phase, build_optimizer(phase)):
        pass
    return {name: value.clone() for name, value in phase.network.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(value.equal(other[name]) for name, value in one.items())


class Recorder:
    """An optimizer that changes nothing and keeps what it was given."""

    rate_scale = 1.0

    def __init__(self, phase: Phase) -> None:
        self._network = phase.network
        self.factors: list[float] = []
        self.gradients: list[dict[str, Tensor]] = []

    def step(self, factor: float) -> StepOutcome:
        named = dict(self._network.named_parameters())
        self.factors.append(factor)
        self.gradients.append({name: weight.grad for name, weight in named.items() if weight.grad is not None})
        for weight in named.values():
            weight.grad = None
        squares = [gradient.square().sum() for gradient in self.gradients[-1].values()]
        return StepOutcome(torch.stack(squares).sum().sqrt(), torch.tensor(False))


def recorded(phase: Phase) -> tuple[Recorder, list[StepRecord]]:
    recorder = Recorder(phase)
    return recorder, list(train(phase, recorder))  # type: ignore[arg-type]


def gradients_of(phase: Phase, loss: Tensor) -> dict[str, Tensor]:
    """The gradients of a loss by autograd alone, nothing accumulated."""
    named = dict(phase.network.named_parameters())
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {name: gradient for name, gradient in zip(named, found, strict=True) if gradient is not None}


def total_loss(phase: Phase, name: str, step: int) -> Tensor:
    objective = phase.objectives[name]
    return objective.loss(phase.network, objective.batch(step)).total


@torch.no_grad()
def adamw_by_hand(
    parameters: list[torch.nn.Parameter], state: dict[int, list[Any]], rate: float, decay: float, limit: float
) -> None:
    """Clip, then one step of Loshchilov and Hutter's AdamW, decay on matrices only."""
    with_gradient = [parameter for parameter in parameters if parameter.grad is not None]
    norm = sum(float(parameter.grad.double().square().sum()) for parameter in with_gradient) ** 0.5  # type: ignore[union-attr]
    for parameter in with_gradient:
        gradient = parameter.grad * min(1.0, limit / norm)  # type: ignore[operator]
        mean, square, count = state.get(id(parameter), [torch.zeros_like(gradient), torch.zeros_like(gradient), 0])
        count += 1
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.98 * square + 0.02 * gradient**2
        state[id(parameter)] = [mean, square, count]
        if parameter.ndim >= 2:
            parameter.mul_(1 - rate * decay)
        parameter.sub_(rate * (mean / (1 - 0.9**count)) / ((square / (1 - 0.98**count)).sqrt() + 1e-6))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_steps_equal_those_written_by_hand(make_phase: MakePhase, architecture: str) -> None:
    ours, by_hand = make_phase(architecture, max_grad_norm=0.5), make_phase(architecture)
    records = list(train(ours, build_optimizer(ours)))
    state: dict[int, list[Any]] = {}
    network = by_hand.network.train()
    for step in range(6):
        (scheduled,) = by_hand.weighting.schedule(step)
        torch.manual_seed(derive(by_hand.seed, "dropout", step))
        objective = by_hand.objectives[scheduled.objective]
        loss = objective.loss(network, objective.batch(scheduled.step))
        network.zero_grad()
        loss.total.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.get_total_norm(
            [weight.grad for weight in network.parameters() if weight.grad is not None]
        )
        rate = 3e-3 * schedule_factor(step, steps=6, warmup_steps=1, kind="linear")
        adamw_by_hand(list(network.parameters()), state, rate, decay=0.1, limit=0.5)
        assert records[step].learning_rate == pytest.approx(rate)
        assert records[step].grad_norm.item() == pytest.approx(norm.item(), rel=1e-4)
        expected = {f"{objective.name}/{name}": part.item() for name, part in loss.parts.items()}
        assert {name: value.item() for name, value in records[step].losses.items()} == pytest.approx(expected, rel=1e-4)
    assert max(record.grad_norm.item() for record in records) > 0.5, "clipped at least once"
    for name, value in network.state_dict().items():
        assert value.allclose(ours.network.state_dict()[name], atol=2e-5), name


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_same_seed_gives_the_same_bits_and_another_does_not(make_phase: MakePhase, architecture: str) -> None:
    one = run(make_phase(architecture))
    torch.manual_seed(77)
    assert same(one, run(make_phase(architecture)))
    assert not same(one, run(make_phase(architecture, seed=1)))


def test_dropout_depends_on_seed_and_step(make_phase: MakePhase) -> None:
    assert same(run(make_phase(dropout=0.0)), run(replace(make_phase(dropout=0.0), seed=5)))  # the data's seed stays
    assert not same(run(make_phase(dropout=0.3)), run(replace(make_phase(dropout=0.3), seed=5)))


def test_going_on_from_a_step_is_what_an_unbroken_loop_does(make_phase: MakePhase) -> None:
    unbroken, stopped = make_phase(), make_phase()
    optimizer = build_optimizer(stopped)
    for record in train(stopped, optimizer):
        if record.step == 2:
            break
    assert [record.step for record in train(stopped, optimizer, start=2)] == [3, 4, 5, 6]
    assert same(run(unbroken), dict(stopped.network.state_dict()))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_loss_falls(make_phase: MakePhase, architecture: str) -> None:
    phase = make_phase(architecture, steps=60, learning_rate=1e-2, weighting=Equal("corpus"))
    losses = [float(record.losses["corpus/mlm"]) for record in train(phase, build_optimizer(phase))]
    assert sum(losses[:4]) / 4 == pytest.approx(math.log(phase.network.config.vocab_size), rel=0.05)
    assert sum(losses[-10:]) / 10 < 0.85 * sum(losses[:4]) / 4


def test_a_step_counts_what_it_did(make_phase: MakePhase) -> None:
    phase = make_phase("bert")
    recorder, records = recorded(phase)
    for record, factor in zip(records, recorder.factors, strict=True):
        (scheduled,) = phase.weighting.schedule(record.step - 1)
        objective = phase.objectives[scheduled.objective]
        batch = objective.batch(scheduled.step)
        assert isinstance(batch, TextBatch)
        assert record.tokens == len(batch.input_ids)
        assert record.padded_tokens == batch.texts * batch.longest >= record.tokens
        assert record.flops == objective.flops(phase.network, batch) > 0
        assert record.learning_rate == factor * phase.learning_rate
    assert [record.step for record in records] == [1, 2, 3, 4, 5, 6]


def test_the_rate_that_is_reported_is_the_rate_in_use() -> None:
    phase = number_phase(steps=2, lr_scheduler_type="constant", warmup_steps=0)
    optimizer = build_optimizer(phase)
    optimizer.scale_rate(0.25)
    assert [record.learning_rate for record in train(phase, optimizer)] == [0.0025, 0.0025]


@pytest.mark.parametrize(
    ("settings", "factors"),
    [
        ({"lr_scheduler_type": "linear", "warmup_steps": 2}, [0.5, 1, 1, 0.75, 0.5, 0.25]),
        ({"lr_scheduler_type": "constant", "warmup_steps": 3}, [1 / 3, 2 / 3, 1, 1, 1, 1]),
        ({"lr_scheduler_type": "warmup_stable_decay", "warmup_steps": 2}, [0.5, 1, 1, 1, 1, 1]),
        ({"lr_scheduler_type": "linear", "warmup_steps": 0}, [1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]),
        (
            {"lr_scheduler_type": "cosine", "warmup_steps": 0.34},
            [0.5, 1, 1, (2 + 2**0.5) / 4, 0.5, (2 - 2**0.5) / 4],
        ),
    ],
)
def test_the_rate_follows_the_schedule(settings: dict[str, Any], factors: list[float]) -> None:
    recorder, records = recorded(number_phase(steps=6, **settings))
    assert recorder.factors == pytest.approx(factors)
    assert [record.learning_rate for record in records] == pytest.approx([0.01 * factor for factor in factors])


@pytest.mark.parametrize("weights", [None, (3, 1)])
def test_weighted_objectives_add_their_gradients(make_phase: MakePhase, weights: tuple[int, int] | None) -> None:
    phase = make_phase(dropout=0.0, weighting=Equal("corpus", "task", weights=weights), steps=1)
    recorder, (record,) = recorded(phase)
    shares = [0.5, 0.5] if weights is None else [0.75, 0.25]
    total = shares[0] * total_loss(phase, "corpus", 0) + shares[1] * total_loss(phase, "task", 0)
    expected = gradients_of(phase, total)
    assert recorder.gradients[0].keys() == expected.keys()
    for name, gradient in expected.items():
        assert recorder.gradients[0][name].allclose(gradient, rtol=1e-4, atol=1e-7), name
    assert set(record.losses) == {"corpus/mlm", "task/mlm", "task/task"}


def test_weights_of_a_head_that_no_objective_uses_stay(make_phase: MakePhase) -> None:
    phase = make_phase(weighting=Equal("corpus"))
    before = {name: value.clone() for name, value in phase.network.state_dict().items()}
    after = run(phase)
    unchanged = {name for name, value in after.items() if value.equal(before[name])}
    assert unchanged == {name for name in before if name.startswith("heads.task.")}


class UnionStream:
    """All texts that a stream deals out in some steps, in one batch."""

    def __init__(self, stream: TextStream, texts: Any, network: Any, size: int) -> None:
        self._stream, self._texts, self._network, self._size = stream, texts, network, size

    def positions(self, step: int) -> Any:
        steps = range(step * self._size, (step + 1) * self._size)
        return np.concatenate([self._stream.positions(one) for one in steps])

    def batch(self, step: int) -> TextBatch:
        return lay_out(self._texts, self.positions(step), self._network.layout(16))


@pytest.mark.parametrize("count", [2, 3])
def test_several_batches_of_a_step_are_one_batch_of_all_their_texts(tmp_path: Path, count: int) -> None:
    texts, network = make_packed(tmp_path), make_network()
    stream = TextStream("task", texts, network, batch_size=BatchSize.parse("4"), seed=0)
    recorders = []
    for one, accumulation in ((stream, count), (UnionStream(stream, texts, network, count), 1)):
        objective = Classification("task", one, make_labels())  # type: ignore[arg-type]
        phase = number_phase(
            network=network,
            objectives={"task": objective},
            weighting=Equal("task"),
            accumulation=accumulation,
            steps=2,
        )
        recorders.append(recorded(phase))
    (several, records), (union, records_of_union) = recorders
    for step in range(2):
        assert several.gradients[step].keys() == union.gradients[step].keys()
        for name, gradient in union.gradients[step].items():
            assert several.gradients[step][name].allclose(gradient, rtol=1e-4, atol=1e-7), name
        assert records[step].tokens == records_of_union[step].tokens
        assert records[step].flops == pytest.approx(records_of_union[step].flops)
        loss, loss_of_union = (found[step].losses["task/task"].item() for found in (records, records_of_union))
        assert loss == pytest.approx(loss_of_union, rel=1e-5)


def read_steps(phase: Phase, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """The batches that each objective was asked for."""
    asked: dict[str, list[int]] = {}
    for name, objective in phase.objectives.items():
        original, steps = objective.batch, asked.setdefault(name, [])
        monkeypatch.setattr(objective, "batch", lambda step, o=original, s=steps: s.append(step) or o(step))
    recorded(phase)
    return asked


def test_steps_of_several_batches_read_the_data_in_order(
    make_phase: MakePhase, monkeypatch: pytest.MonkeyPatch
) -> None:
    phase = make_phase(accumulation=3, steps=5)  # corpus and task in turn
    asked = read_steps(phase, monkeypatch)
    assert asked == {"corpus": list(range(9)), "task": list(range(6))}


def test_a_ramp_begins_with_one_batch_and_ends_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    phase = number_phase(accumulation=3, ramp_fraction=0.5, steps=8, weighting=Equal("sum"))
    assert [phase.batches_in(step) for step in range(8)] == [1, 1, 2, 2, 3, 3, 3, 3]
    asked = read_steps(phase, monkeypatch)["sum"]
    assert asked == [0, 3, 6, 7, 9, 10, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]
    _, records = recorded(phase)
    assert [record.tokens for record in records] == [4, 4, 8, 8, 12, 12, 12, 12]


def test_while_the_ramp_lasts_a_step_is_the_mean_of_its_batches() -> None:
    phase = number_phase(accumulation=4, ramp_fraction=0.5, steps=8, weighting=Equal("sum"))
    phase.network.encoder[2].p = 0.0
    recorder, _ = recorded(phase)
    count = phase.batches_in(2)
    assert 1 < count < 4
    mean = sum(total_loss(phase, "sum", 2 * 4 + number) for number in range(count)) / count
    assert isinstance(mean, Tensor)
    for name, gradient in gradients_of(phase, mean).items():
        assert recorder.gradients[2][name].allclose(gradient, rtol=1e-4, atol=1e-7), name


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_rule_that_sees_gradients_weighs_the_body_and_leaves_the_heads(accumulation: int) -> None:
    rule = Learned()
    phase = number_phase(weighting=rule, accumulation=accumulation, steps=1)
    phase.network.encoder[2].p = 0.0
    recorder, (record,) = recorded(phase)
    mean = {
        name: gradients_of(phase, sum(total_loss(phase, name, step) for step in range(accumulation)) / accumulation)  # type: ignore[arg-type]
        for name in phase.objectives
    }
    encoder = [name for name, _ in phase.network.named_parameters() if name.startswith("encoder.")]
    for objective, gradients in mean.items():
        flat = torch.cat([gradients[name].flatten() for name in encoder])
        assert rule.seen[0][objective].allclose(flat, rtol=1e-4, atol=1e-7)
    assert rule.weights != {"sum": torch.tensor(0.7), "first": torch.tensor(0.3)}
    found = recorder.gradients[0]
    assert found.keys() == dict(phase.network.named_parameters()).keys()
    for name, gradient in found.items():
        if name in encoder:
            expected = sum(rule.weights[objective] * mean[objective][name] for objective in mean)
        else:
            expected = mean[name.split(".")[1]][name]
        assert gradient.allclose(expected, rtol=1e-4, atol=1e-7), name
    assert set(record.losses) == {"sum/error", "first/error"}


def test_at_steps_where_the_rule_looks_away_its_turns_carry_the_weights() -> None:
    rule = Learned()
    phase = number_phase(weighting=rule, steps=2)
    phase.network.encoder[2].p = 0.0
    recorder, _ = recorded(phase)
    expected = gradients_of(phase, 0.5 * total_loss(phase, "sum", 1) + 0.5 * total_loss(phase, "first", 1))
    assert len(rule.seen) == 1
    for name, gradient in expected.items():
        assert recorder.gradients[1][name].allclose(gradient, rtol=1e-4, atol=1e-7), name


def test_a_rule_may_give_an_objective_two_turns() -> None:
    class Twice(Learned):
        def schedule(self, step: int) -> tuple[ScheduledObjective, ...]:
            return (
                ScheduledObjective("sum", 1.0, 2 * step),
                ScheduledObjective("first", 1.0, step),
                ScheduledObjective("sum", 1.0, 2 * step + 1),
            )

    rule = Twice()
    phase = number_phase(weighting=rule, steps=1)
    phase.network.encoder[2].p = 0.0
    recorded(phase)
    both = gradients_of(phase, total_loss(phase, "sum", 0) + total_loss(phase, "sum", 1))
    flat = torch.cat([gradient.flatten() for name, gradient in both.items() if name.startswith("encoder.")])
    assert rule.seen[0]["sum"].allclose(flat, rtol=1e-4, atol=1e-7)


def test_what_is_no_text_trains_in_the_same_loop() -> None:
    phase = number_phase(steps=80, learning_rate=0.03)
    records = list(train(phase, build_optimizer(phase)))
    for name in phase.objectives:
        errors = [record.losses[f"{name}/error"].item() for record in records]
        assert sum(errors[-10:]) < 0.5 * sum(errors[:10])
    assert {(record.tokens, record.padded_tokens, record.flops) for record in records} == {(8, 8, 800.0)}


def test_the_loop_asks_for_every_batch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    phase = number_phase(objectives={"sum": Regression("sum")}, weighting=Equal("sum"), steps=7)
    assert read_steps(phase, monkeypatch) == {"sum": list(range(7))}


@pytest.mark.parametrize("moves", [False, True])
def test_a_head_rests_between_its_turns_unless_it_is_to_move(moves: bool) -> None:
    rule = Interleave("sum", "first", rho1=2)
    phase = number_phase(weighting=rule, steps=5, update_unused_heads=moves, weight_decay=0.0)
    head = phase.network.heads["first"].weight
    values = [head.detach().clone() for _ in train(phase, build_optimizer(phase))]
    turned = [not earlier.equal(later) for earlier, later in pairwise(values)]
    assert turned == [False, True, moves, moves]  # its turn is the third step; then momentum alone moves it


def test_a_rule_hears_of_skipped_steps_and_its_values_reach_the_curves() -> None:
    heard: list[bool] = []

    class Listening(Learned):
        def after_step(self, step: int, skipped: torch.Tensor) -> None:
            heard.append(bool(skipped))

        def values(self) -> dict[str, torch.Tensor]:
            return {f"weight/{name}": weight for name, weight in self.weights.items()}

    phase = number_phase(weighting=Listening(), steps=4)
    original = phase.objectives["sum"].loss

    def broken_once(network: Any, batch: Any) -> Loss:
        loss = original(network, batch)
        return Loss(loss.total * float("nan"), loss.parts) if len(heard) == 1 else loss

    phase.objectives["sum"].loss = broken_once  # type: ignore[method-assign]
    records = list(train(phase, build_optimizer(phase)))
    assert heard == [False, True, False, False]
    assert {"weight/sum", "weight/first"} <= records[0].losses.keys()
