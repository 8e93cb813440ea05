"""The probe's step and scores against closed forms and single weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.results_file import read_results
from endtask.gradients.rows import Block, Gradients, LinearRows
from endtask.io.atomic import write_json
from studies.pages.probe import probe_section
from studies.probe import Step, collect, decrease, gradients_of, read_rows
from studies.probe_scores import SCORES, Eigenbasis, Measured, as_stepped, inner, rank_correlation

EPSILON = 1e-6


class Toy:
    """Two weights, a loss of candidates and a task loss."""

    def __init__(self) -> None:
        draw = torch.Generator().manual_seed(0)
        self.weights = [nn.Parameter(torch.randn(3, 4, generator=draw)), nn.Parameter(torch.randn(3, generator=draw))]
        self.inputs, self.targets = torch.randn(6, 4, generator=draw), torch.randn(6, 3, generator=draw)

    def candidate_loss(self) -> torch.Tensor:
        return (self.inputs[:3] @ self.weights[0].T + self.weights[1] - self.targets[:3]).square().mean()

    def task_loss(self) -> torch.Tensor:
        return (self.inputs[3:] @ self.weights[0].T + self.weights[1]).tanh().square().mean()


def test_a_small_step_lowers_the_task_loss_by_the_product_with_the_stepped_gradient() -> None:
    toy = Toy()
    squares = [torch.rand_like(weight) + 0.5 for weight in toy.weights]
    found = gradients_of(toy.candidate_loss(), toy.weights)
    task = gradients_of(toy.task_loss(), toy.weights)
    before = toy.task_loss().item()
    start = [weight.detach().clone() for weight in toy.weights]
    step = Step(toy.weights, squares, learning_rate=1e-4)
    measured = decrease(step, found, lambda: toy.task_loss().item(), before)
    # The optimizer adds a fiftieth of the new gradient's square to the second moment.
    moments = [0.98 * square + 0.02 * gradient.square() for square, gradient in zip(squares, found, strict=True)]
    expected = 1e-4 * inner(task, as_stepped(found, moments, EPSILON))
    assert measured == pytest.approx(expected, rel=0.02)
    assert all(torch.equal(weight, old) for weight, old in zip(toy.weights, start, strict=True))


def test_equal_second_moments_make_the_step_plain_gradient_descent() -> None:
    toy = Toy()
    found, task = (gradients_of(loss(), toy.weights) for loss in (toy.candidate_loss, toy.task_loss))
    large = [torch.full_like(weight, 1e6) for weight in toy.weights]
    step = Step(toy.weights, large, learning_rate=1.0)
    measured = decrease(step, found, lambda: toy.task_loss().item(), toy.task_loss().item())
    rate = 1.0 / (0.98e6**0.5)
    assert measured == pytest.approx(rate * inner(task, found), rel=0.02)


def test_ekfac_solves_the_fisher_matrix_of_a_single_input() -> None:
    """With one input direction and one output direction the Fisher matrix has one entry."""
    rows = LinearRows(
        left=torch.tensor([[2.0, 0.0], [4.0, 0.0]]),
        right=torch.tensor([[1.0, 0.0], [1.0, 0.0]]),
        owners=torch.tensor([0, 1]),
    )
    basis = Eigenbasis.of(Gradients(2, {Block("W", 2, 2): (rows,)}))
    gradient = torch.tensor([[3.0, 0.0], [0.0, 0.0]])
    moment = (4.0 + 16.0) / 2
    assert basis.solve(gradient)[0, 0].item() == pytest.approx(3.0 / (moment + 0.1 * moment / 4), rel=1e-5)
    assert basis.solve(torch.eye(2))[1, 1] > basis.solve(torch.eye(2))[0, 0], "directions without curvature go further"


@pytest.mark.long
def test_results_and_page_of_a_probe(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    decreases = draw.normal(size=40)
    values = {name: draw.normal(size=40).tolist() for name in SCORES}
    values["full_adam"] = decreases.tolist()
    found = {"task": "sciie", "model": "m", "decrease": decreases.tolist(), "scores": values, "seconds": 1.0}
    found |= {"plan": {"texts": 4, "learning_rate": 1e-4}, "loss_before": 1.0}
    found["held_out"] = {"metric": "macro_f1", "score": 0.5, "majority": 0.1, "chance": 0.2, "rows": 9}
    (tmp_path / "sciie").mkdir()
    write_json(tmp_path / "sciie" / "probe.json", found)
    collect(tmp_path, tmp_path)
    results = read_results("probe", tmp_path)
    assert results.summary["sciie_full_adam"] == 1.0
    page = probe_section(results)
    assert SCORES["full_adam"].title in page
    assert f"Above chance on all 1 tasks: {SCORES['full_adam'].title}" in page
    assert page.index("LESS") < page.index("BM25 rank") or results.summary["sciie_bm25_rank"] == 1.0
    assert rank_correlation(-decreases, decreases)["spearman"] == -1.0


def test_a_stopped_probe_goes_on_after_its_last_batch(tmp_path: Path) -> None:
    assert read_rows(tmp_path) == []
    (tmp_path / "rows.jsonl").write_text('[0.1, {"full_dot": 2.0}]\n[0.2, {"full_dot": 3.0}]\n')
    assert read_rows(tmp_path) == [Measured(0.1, {"full_dot": 2.0}), Measured(0.2, {"full_dot": 3.0})]
