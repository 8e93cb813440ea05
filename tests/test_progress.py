"""Progress bars and messages, on standard error only."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from endtask.errors import InputError
from endtask.progress import RunLog, bar, bars, quiet, recorded, say, set_quiet, stage_of_run, warn
from endtask.progress.log import PROGRESS_FILE
from endtask.progress.views import bar_html


def test_off_a_terminal_a_bar_is_one_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    with bar("pretrain", 3) as advance:
        for _ in range(3):
            advance(1, note="loss 1.0")
    captured = capsys.readouterr()
    assert captured.err == "pretrain\n"
    assert captured.out == ""


def test_lines_are_said_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    line = "[red]not markup[/red] " + "long " * 60
    say(line)
    assert capsys.readouterr().err.rstrip() == line.rstrip()


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    set_quiet(True)
    say("anything")
    with bar("pretrain", 3) as advance:
        advance()
    captured = capsys.readouterr()
    assert captured.err == captured.out == ""


def test_warnings_are_told_each_time_when_not_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    warn("too few rows")
    warn("too few rows")
    warn("all rows stand in train", level="error")
    assert capsys.readouterr().err.splitlines() == ["warning: too few rows"] * 2 + ["error: all rows stand in train"]


def test_quiet_leaves_each_warning_once(capsys: pytest.CaptureFixture[str]) -> None:
    set_quiet(True)
    for text in ("too few rows", "too many rows", "too few rows"):
        warn(text)
    assert capsys.readouterr().err.splitlines() == ["warning: too few rows", "warning: too many rows"]
    set_quiet(True)  # another command of the same process
    warn("too few rows")
    assert capsys.readouterr().err == "warning: too few rows\n"


def test_warnings_go_through_the_one_function(repository: Path) -> None:
    """Lines that are said are lost with `-q`."""
    sources = {path: path.read_text(encoding="utf-8") for path in (repository / "src").rglob("*.py")}
    assert [path.name for path, text in sources.items() if re.search(r"\bsay\(\s*f?[\"']warning", text)] == []


def test_an_error_inside_a_bar_comes_out() -> None:
    with pytest.raises(ValueError, match="inside"), bar("pretrain", 3):
        raise ValueError("inside")


def test_off_a_terminal_a_line_every_half_minute(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines come without a call of `advance`, as in a step that takes minutes."""
    monkeypatch.setattr(bars, "SECONDS_BETWEEN_LINES", 0.01)
    seen: list[str] = []
    with bar("pretrain", 10) as advance:
        advance(5, note="loss 1.5")
        while len(seen) < 3:
            seen += capsys.readouterr().err.splitlines()
    assert seen[0] == "pretrain"
    assert re.fullmatch(r"pretrain: 5 of 10 \(50%\), about .* s left, loss 1.5", seen[2])


def test_the_time_left_counts_what_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 of 40 steps took 20 s: 60 s are left of this bar, 40 s of 20 more steps, and 30 s of later stages."""
    now = 1000.0
    monkeypatch.setattr(bars.time, "monotonic", lambda: now)
    with bars.stage_of_run("finetune", 6, 8, later=30.0), bar("seed 0", 50, done=10, after=20) as advance:
        now += 20
        assert bars.progress_line(now) == "seed 0: 10 of 50 (20%), stage 6 of 8, about 30 s left in all"
        advance(10)
        assert bars.progress_line(now) == (
            "seed 0: 20 of 50 (40%), about 1 min 0 s left, stage 6 of 8, about 2 min 10 s left in all"
        )
        advance(0, total=30)  # the plan is shorter now
        assert bars.progress_line(now).startswith("seed 0: 20 of 30 (67%), about 20 s left")
    assert bars.overall_left() == ""


@pytest.mark.parametrize(
    ("later", "expected"), [(None, "stage 2 of 8"), (600.0, "stage 2 of 8, about 10 min 0 s left")]
)
def test_a_stage_without_a_bar(later: float | None, expected: str) -> None:
    with bars.stage_of_run("retrieve", 2, 8, later=later):
        assert re.match(rf"retrieve: 0.\d s so far, {expected}", bars.progress_line(time.monotonic()))


def stop_after_opening(log: RunLog, file: Path) -> None:
    log.open(file)
    raise InputError("no such thing")


def test_everything_printed_is_in_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.log"
    for text in ("one", "two \x1b[2J\x1b]0;title\a 50 °C"):
        with recorded() as log:
            warn(text)
            assert log is not None
            log.open(file)
            with quiet(), recorded() as inner:
                assert inner is log
                say("more")
    with pytest.raises(InputError), recorded() as log:
        stop_after_opening(log, file)
    lines = file.read_text(encoding="utf-8").splitlines()
    assert [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", "", line) for line in lines] == [
        "warning: one",
        "more",
        r"warning: two \x1b[2J\x1b]0;title\x07 50 °C",
        "more",
        "stopped: no such thing",
    ]
    say("after")
    assert len(file.read_text(encoding="utf-8").splitlines()) == 5


def test_a_bar_in_a_notebook_escapes_its_texts() -> None:
    state = bars._Bar("<b>label</b>", 10, 5, "", 0.0, note="<i>")
    html = bar_html(state, "stage 1 of 8")
    assert '<progress max="10" value="5"></progress>' in html
    assert "&lt;b&gt;label" in html
    assert html.endswith("stage 1 of 8, &lt;i&gt;</div>")


def test_the_state_of_the_bars_is_in_the_folder_while_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bars, "SECONDS_BETWEEN_STATES", 0.01)
    file = tmp_path / PROGRESS_FILE
    with recorded() as log:
        log.open(tmp_path / "run.log")
        with stage_of_run("pretrain", 5, 8, later=None), bar("pretrain", 10) as advance:
            advance(5, note="loss 1.5")
            values: dict[str, object] = {}
            while values.get("done") != 5:
                values = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    assert (values["stage"], values["number"], values["total"], values["note"]) == ("pretrain", 5, 10, "loss 1.5")
    assert not file.exists()
