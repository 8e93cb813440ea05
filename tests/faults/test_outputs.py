"""Texts of strangers in what people open: terminals, cards, spreadsheets."""

from __future__ import annotations

import csv
import json
import os
import re
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from endtask.errors import InputError
from endtask.export.markdown import cell, code, plain
from endtask.io.atomic import write_text
from endtask.io.run_layout import SELECTION, SETTINGS_FILE
from endtask.io.selection_table import write_selection
from endtask.records import Document, Selected
from endtask.selectors.export import export_selection
from tests.conftest import Answer
from tests.toy_run import write_rows

Command = Callable[..., Answer]
HOSTILE = "\x1b]0;title\x07\x1b[2J\u202egnp\u200b<img src=x onerror=alert(1)>`|\x9b31m"
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]")
FORMULAS = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1"]


def test_check_prints_no_control_characters_and_exact_json(tmp_path: Path, command: Command) -> None:
    labels = [f"{HOSTILE}{n}" for n in range(2)]
    rows = [{"text": f"{HOSTILE} word{n} other{n}", "label": labels[n % 2], "id": f"{HOSTILE}{n}"} for n in range(40)]
    words = ["check", "--task", write_rows(tmp_path / "rows.jsonl", rows)]
    printed = command(*words)
    assert printed.code in (0, 1)
    assert not _CONTROL.search(printed.out + printed.err)
    assert "\\x1b[2J" in printed.out
    answer = command(*words, "--json").out
    assert not _CONTROL.search(answer)
    assert json.dumps(HOSTILE, ensure_ascii=False)[1:-1] in json.dumps(json.loads(answer), ensure_ascii=False)


def test_cards_hold_no_html_outside_code() -> None:
    for text in (HOSTILE, "<script>`</script>", "`` <b>", "a|<b>|\n\n<b>"):
        assert not re.search(r"(?<!\\)[<>]", plain(text))
        for span in (code(text), cell(text)):
            fence = re.match(r"`+", span)
            assert fence is not None
            assert span.endswith(fence[0])
            assert "\n" not in span
            assert not re.search(
                rf"(?<!`){fence[0]}(?!`)", span[len(fence[0]) : -len(fence[0])]
            )  # nothing ends it early


@pytest.mark.parametrize("raw_cells", [False, True])
def test_formulas_in_an_exported_selection(tmp_path: Path, raw_cells: bool) -> None:
    (tmp_path / "select").mkdir()
    (tmp_path / SETTINGS_FILE).write_text("{}")
    documents = [Document(text, text, "source", "", "") for text in [*FORMULAS, "plain = text"]]
    selected = [Selected(document, n, n + 1, 1.0, 0, (), "rank") for n, document in enumerate(documents)]
    write_selection(tmp_path / "select" / SELECTION, selected)
    export_selection(tmp_path, tmp_path / "a.csv", raw_cells=raw_cells)
    with open(tmp_path / "a.csv", newline="", encoding="utf-8") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    assert texts == [*([text if raw_cells else f"'{text}" for text in FORMULAS]), "plain = text"]
    export_selection(tmp_path, tmp_path / "a.jsonl")
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    assert [json.loads(line)["text"] for line in lines] == [document.text for document in documents]


def test_the_guard_against_connections_sees_them(no_network: list[object]) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    socket.create_connection(listening.getsockname()[:2]).close()
    listening.close()
    assert no_network == []
    with pytest.raises(OSError, match="no network in this test"):
        socket.create_connection(("192.0.2.1", 80), timeout=1)
    with pytest.raises(OSError, match="no network in this test"), socket.socket() as connection:
        connection.connect(("192.0.2.1", 80))
    assert no_network == ["192.0.2.1", "192.0.2.1"]
    no_network.clear()


def test_devices_and_pipes_are_never_replaced(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(InputError, match="never replaced"):
            write_text(path, "words")
        assert stat.S_ISFIFO(path.stat().st_mode)
    assert sorted(tmp_path.iterdir()) == [link, pipe]
