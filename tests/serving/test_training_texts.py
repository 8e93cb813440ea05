"""Influence in the last layer against autograd, and nearness against cosines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from fastapi.testclient import TestClient
from torch.nn import functional

from endtask.reporting.results import stored_task
from endtask.reporting.run_folder import RunFolder
from endtask.serving.predictor import load
from endtask.serving.training_texts import TrainingTexts, last_states, state_rows
from tests.web.conftest import client_of


def test_influence_is_the_change_of_the_logit_in_a_gradient_step(finished_run: Path) -> None:
    predictor = load(finished_run)
    task = stored_task(RunFolder(finished_run))
    assert task is not None
    rows = task.train[:7]
    texts = TrainingTexts.join([state_rows(predictor, [row.text], [row.label]) for row in rows])
    states, logits = last_states(predictor, ["soup bread star"])
    answer = int(logits[0].argmax())
    layer = [module for module in predictor.network.modules() if isinstance(module, torch.nn.Linear)][-1]
    state = torch.from_numpy(states[0])
    assert torch.allclose(layer(state), torch.from_numpy(logits[0]), atol=1e-5)
    expected = []
    for row in rows:
        read = torch.from_numpy(last_states(predictor, [row.text])[0][0])
        loss = functional.cross_entropy(layer(read)[None], torch.tensor([predictor.labels.index(str(row.label))]))
        weight, bias = torch.autograd.grad(loss, [layer.weight, layer.bias])
        expected.append(float(-(weight[answer] @ state + bias[answer])))
    evidence = texts.evidence(states[0], answer, top=7)
    found = {near.index: near.value for near in (*evidence.supporting, *evidence.opposing)}
    np.testing.assert_allclose([found[number] for number in range(7)], expected, rtol=1e-3, atol=1e-6)
    values = [near.value for near in evidence.nearest]
    assert values == sorted(values, reverse=True)


def test_a_training_text_is_nearest_to_itself(finished_run: Path, finished_pair_run: Path) -> None:
    task = stored_task(RunFolder(finished_run))
    assert task is not None
    with client_of(finished_run.parent) as client:
        for row in task.train[:3]:
            found = client.post("/api/runs/run/explain", json={"text": row.text, "top": 3}).json()
            assert found["nearest"][0]["value"] > 0.999
            assert row.id in {near["id"] for near in found["nearest"]} or found["nearest"][2]["value"] > 0.999
            assert (found["compared"], found["train_rows"]) == (60, 60)
            assert all(near["value"] > 0 for near in found["supporting"])
            assert all(near["value"] < 0 for near in found["opposing"])
    with client_of(finished_pair_run) as client:
        pair: TestClient = client
        answer = pair.post(f"/api/runs/{finished_pair_run.name}/explain", json={"text": ["soup", "bread"]})
        assert " / " in answer.json()["nearest"][0]["text"]
