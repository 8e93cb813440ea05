"""Runs that go on: stages, steps, warnings, curves so far, stop and resume."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from endtask.io.processes import run_lock
from endtask.progress.log import PROGRESS_FILE
from endtask.reporting.running import charts_so_far, rows_so_far
from endtask.web import jobs


@pytest.fixture
def unfinished(own_run: Path) -> Path:
    """The run as it is inside fine-tuning."""
    for stage in ("evaluate", "model"):
        shutil.rmtree(own_run / stage)
    (own_run / "finetune").rename(own_run / "finetune.partial")
    (own_run / "finetune.partial" / "manifest.json").unlink()
    return own_run


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Processes of runs that wait instead; the file has their arguments."""
    stub, arguments = tmp_path / "python", tmp_path / "arguments"
    stub.write_text(f'#!/bin/sh\necho "$@" > {arguments}\necho "endtask: error: stub"\nexec sleep 60\n')
    stub.chmod(0o755)
    monkeypatch.setattr(jobs.sys, "executable", str(stub))
    return arguments


def test_a_finished_run_has_all_stages(client: TestClient) -> None:
    found = client.get("/api/runs/run/progress").json()
    assert (found["finished"], found["alive"], found["step"], found["problem"]) == (True, False, None, None)
    assert {stage["state"] for stage in found["stages"]} == {"finished"}
    assert all(stage["seconds"] > 0 for stage in found["stages"])
    assert len(client.get("/api/runs/run/charts").json()["charts"]) >= 3
    assert client.get("/runs/run/live").status_code == 200


def test_a_run_inside_a_stage(own_client: TestClient, unfinished: Path) -> None:
    step = {"stage": "finetune", "number": 6, "stages": 8, "description": "seed 0", "done": 3, "total": 6}
    (unfinished / PROGRESS_FILE).write_text(json.dumps(step))
    stopped = own_client.get("/api/runs/run/progress").json()
    assert (stopped["alive"], stopped["step"]) == (False, None)
    with run_lock(unfinished):
        found = own_client.get("/api/runs/run/progress").json()
    assert {stage["name"]: stage["state"] for stage in found["stages"]} | {"finetune": "running", "model": "open"} == {
        stage["name"]: stage["state"] for stage in found["stages"]
    }
    assert (found["step"]["done"], found["step"]["total"]) == (3, 6)
    assert found["state"] == "running (finetune)"


def test_curves_so_far_are_those_of_the_finished_stage(finished_run: Path, unfinished: Path) -> None:
    titles = [chart.partition("<title")[2][:80] for chart in charts_so_far(finished_run)]
    so_far = [chart.partition("<title")[2][:80] for chart in charts_so_far(unfinished)]
    assert so_far == titles


def test_a_line_that_is_being_written_is_no_row(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"ste')
    assert rows_so_far(tmp_path / "metrics.jsonl") == [{"step": 1}, {"step": 2}]
    assert rows_so_far(tmp_path / "nothing") == []


def test_resume_and_stop(own_client: TestClient, unfinished: Path, patient: Path) -> None:
    assert own_client.post("/api/runs/run/stop").status_code == 409
    found = own_client.post("/api/runs/run/resume", json={"start": "retrieve"}).json()
    assert (found["alive"], found["state"]) == (True, "starting")
    again = own_client.post("/api/runs/run/resume", json={})
    assert (again.status_code, again.json()["detail"]) == (409, "the run goes on already")
    process = own_client.app.state.site.jobs._processes[unfinished]  # type: ignore[attr-defined]
    assert own_client.post("/api/runs/run/stop").status_code == 200
    assert process.wait(10) == -signal.SIGTERM
    assert own_client.get("/api/runs/run/progress").json()["alive"] is False


def test_stop_signals_the_process_that_holds_the_lock(own_client: TestClient, unfinished: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom endtask.io.processes import run_lock\n"
        "with run_lock(Path(sys.argv[1])):\n    print('locked', flush=True)\n    time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(unfinished)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"locked\n"
    assert own_client.post("/api/runs/run/stop").status_code == 200
    assert process.wait(10) == -signal.SIGTERM
    process.stdout.close()


def test_a_stage_to_redo_must_exist(own_client: TestClient, patient: Path) -> None:
    answer = own_client.post("/api/runs/run/resume", json={"start": "cook"})
    assert answer.status_code == 422
    assert "no stage 'cook'" in answer.json()["detail"]
    assert not patient.exists()


def test_the_error_of_a_process_is_shown(own_run: Path, own_client: TestClient) -> None:
    (own_run / jobs.PROCESS_LOG).write_text("read: started\nendtask: error: no such file\n")
    assert own_client.get("/api/runs/run/progress").json()["problem"] == "endtask: error: no such file"
