"""Fused heads against stacked ones, which are torch's own operations, and threads that share out runs."""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from endtask.encoders.batch import IGNORED
from endtask.encoders.heads import ModernTaskHead, TokenHead
from endtask.encoders.lean_layers import PredictionHead
from endtask.few_examples.fused_heads import FusedHead, can_be_fused
from endtask.few_examples.noise import Noise, dropout_factors
from endtask.few_examples.stacked_heads import Asked, StackedHead, Weights
from endtask.few_examples.threads import in_threads

HIDDEN, ROWS = 20, 11


def make_head(classes: int, *, seed: int = 0) -> nn.Module:
    config = SimpleNamespace(hidden_size=HIDDEN, norm_eps=1e-5, classifier_dropout=0.1, num_labels=classes)
    head = ModernTaskHead(config, PredictionHead(config))
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in head.parameters():
            weight.copy_(0.5 * torch.randn(weight.shape, generator=random))
    return head


def states(classes: int, runs: int) -> list[Weights]:
    return [
        {name: weight.detach().clone() for name, weight in make_head(classes, seed=seed).named_parameters()}
        for seed in range(runs)
    ]


def make_asked(classes: int, runs: int, *, scale: float = 2.0) -> Asked:
    """Vectors of which some are zero; runs ask about ever fewer of them, the last about none."""
    random = torch.Generator().manual_seed(7)
    vectors = scale * torch.randn(runs, ROWS, HIDDEN, generator=random)
    vectors[:, 2] = 0.0
    answers = torch.randint(classes, (runs, ROWS), generator=random)
    for run in range(runs):
        answers[run, 4 : 4 + 3 * run] = IGNORED
    answers[-1] = IGNORED
    return Asked(vectors, answers)


def assert_close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Equal up to the rounding of single precision, measured by the largest number."""
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max().item() <= 2e-6 * max(1e-3, wanted.abs().max().item())


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("scale", [0.01, 2.0, 30.0])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_gradients_are_those_of_stacked_heads_in_double_precision(classes: int, scale: float, dropout: float) -> None:
    weights, asked, noise = states(classes, 4), make_asked(classes, 4, scale=scale), Noise((3, 0, 3, 1), 5, dropout)
    fused = FusedHead(make_head(classes), weights)
    exact = StackedHead(
        make_head(classes).double(), [{name: value.double() for name, value in one.items()} for one in weights]
    )
    found = fused.gradients(asked, noise)
    wanted = exact.gradients(Asked(asked.vectors.double(), asked.classes), noise)
    assert found.keys() == fused.weights.keys() == wanted.keys()
    found["head.dense.weight"] = found["head.dense.weight"].transpose(1, 2)
    for name, value in wanted.items():
        for run in range(4):
            assert_close(found[name][run].double(), value[run])
        assert not found[name][-1].any()  # asks nothing


@pytest.mark.parametrize("classes", [2, 5])
def test_logits_are_those_of_the_head_itself(classes: int) -> None:
    weights, vectors = states(classes, 3), make_asked(classes, 3).vectors
    fused = FusedHead(make_head(classes), weights)
    logits = fused.logits(vectors)
    for run in range(3):
        head = make_head(classes, seed=run).double().eval()
        wanted = head(vectors[run].double())
        assert_close(logits[run].double(), wanted)
        assert_close(fused.logits_of(run, fused.weights, vectors[run]).double(), wanted)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_run_gone_wrong_leaves_its_neighbours_alone(wrong: float) -> None:
    weights, asked, noise = states(2, 3), make_asked(2, 3), Noise((0, 0, 0), 0, 0.1)
    wanted = FusedHead(make_head(2), weights).gradients(asked, noise)
    weights[1]["head.dense.weight"] = torch.full((HIDDEN, HIDDEN), wrong)
    broken = FusedHead(make_head(2), weights)
    found, losses = broken.gradients(asked, noise), asked.mean_loss(broken.logits(asked.vectors))
    assert all(torch.equal(found[name][[0, 2]], wanted[name][[0, 2]]) for name in wanted)
    assert losses.isfinite().tolist() == [True, False, True]


def test_heads_that_can_be_fused() -> None:
    assert can_be_fused(make_head(2))
    assert not can_be_fused(make_head(2).double())
    assert not can_be_fused(make_head(2).to("meta"))
    with_bias = make_head(2)
    assert isinstance(with_bias.head, PredictionHead)
    with_bias.head.dense = nn.Linear(HIDDEN, HIDDEN)
    assert not can_be_fused(with_bias)
    assert not can_be_fused(TokenHead(SimpleNamespace(hidden_size=HIDDEN, hidden_dropout_prob=0.1, num_labels=2)))


def test_kept_numbers_are_those_of_the_factors() -> None:
    noise = Noise((4, 2, 4), 9, 0.25)
    kept, of_run = noise.kept("dropout.factors", ROWS, HIDDEN)
    assert kept.shape == (2, ROWS, HIDDEN)
    for run, seed in enumerate(noise.seeds):
        factors = dropout_factors(seed, 9, "dropout.factors", ROWS, HIDDEN, 0.25).numpy()
        assert np.array_equal(kept[of_run[run]] / np.float32(0.75), factors)
        assert torch.equal(
            noise.factors(["dropout.factors"], ROWS, HIDDEN)["dropout.factors"][run], torch.from_numpy(factors)
        )
    everything, _ = Noise((4, 2), 9, 0.0).kept("dropout.factors", 2, 3)
    assert everything.all()


def test_every_thread_works_alone_and_parts_come_in_order() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        found = list(in_threads(lambda part, _: (part, torch.get_num_threads()), range(20)))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert found == [(part, 1) for part in range(20)]


def test_an_error_in_one_part_tells_the_others_to_stop() -> None:
    events: list[Event] = []

    def make(part: int, stop: Event) -> int:
        events.append(stop)
        if part == 1:
            raise ValueError("part 1")
        return part

    made = in_threads(make, [0, 1])
    assert next(made) == 0
    assert not events[0].is_set()
    with pytest.raises(ValueError, match="part 1"):
        next(made)
    assert events[0].is_set()
