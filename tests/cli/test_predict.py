"""`endtask predict`: arguments, files, standard input, pairs."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.cli.predict import arrived_lines, trial_line
from endtask.config import dump_yaml, load_settings
from endtask.serving.predictor import load
from tests.conftest import Answer

Command = Callable[..., Answer]
TEXTS = ["soup bread salt", "star moon orbit", "ball goal team, \u00fcberall"]


@pytest.fixture(scope="module")
def expected(finished_run: Path) -> str:
    predictions = load(finished_run).predict(TEXTS)
    return "".join(f"{one.label}\t{one.probability:.4f}\n" for one in predictions)


def feed(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_texts_as_arguments(finished_run: Path, command: Command, expected: str) -> None:
    assert command("predict", finished_run, *TEXTS) == Answer(0, expected, "")
    assert command("predict", finished_run / "model", *TEXTS).out == expected


def test_json(finished_run: Path, command: Command) -> None:
    lines = command("predict", finished_run, *TEXTS, "--json").out.splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) == 3
    for row in rows:
        assert row.keys() == {"label", "probability", "probabilities"}
        assert list(row["probabilities"]) == ["food", "space", "sport"]
        assert sum(row["probabilities"].values()) == pytest.approx(1)
        assert row["probability"] == row["probabilities"][row["label"]] == max(row["probabilities"].values())


FILES = {
    "texts.txt": "\n".join(TEXTS) + "\n",
    "texts.csv": "text,other\n" + "".join(f'"{text}",1\n' for text in TEXTS),
    "texts.tsv": "other\ttext\n" + "".join(f"1\t{text}\n" for text in TEXTS),
    "texts.jsonl": "".join(json.dumps({"text": text}) + "\n" for text in TEXTS),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file(finished_run: Path, tmp_path: Path, command: Command, expected: str, name: str) -> None:
    (tmp_path / name).write_text(FILES[name], encoding="utf-8")
    answer = command("predict", finished_run, "--file", tmp_path / name, "--batch-size", 2)
    assert [line.split("\t")[0] for line in answer.out.splitlines()] == [
        line.split("\t")[0] for line in expected.splitlines()
    ]
    assert command("predict", finished_run, "--file", tmp_path / name).out == expected


def test_the_column_that_the_task_named_is_read_where_it_is_there(
    finished_run: Path, tmp_path: Path, command: Command, expected: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished_run, run)
    asked = load_settings(run / "settings.yaml", overrides=["task.columns.text=Fråga (text)"])
    (run / "settings.yaml").write_text(dump_yaml(asked), encoding="utf-8")
    for name in ("Fråga (text)", "text"):
        path = tmp_path / "table.jsonl"
        path.write_text("".join(json.dumps({name: text}) + "\n" for text in TEXTS), encoding="utf-8")
        assert command("predict", run, "--file", path).out == expected
        assert command("predict", run / "model", "--file", path).out == expected


@pytest.mark.parametrize("names", [("premise", "hypothesis"), ("text", "text_pair"), ("premise", "text_pair")])
def test_columns_of_pairs_are_those_of_the_task_or_the_usual_ones(
    finished_pair_run: Path, tmp_path: Path, command: Command, names: tuple[str, str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished_pair_run, run)
    asked = ["task.columns.text=premise", "task.columns.text_pair=hypothesis"]
    (run / "settings.yaml").write_text(dump_yaml(load_settings(run / "settings.yaml", overrides=asked)), "utf-8")
    (run / "settings.yaml").open("a", encoding="utf-8").write("of_a_later_release: 1\n")
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps(dict(zip(names, ("soup bread", "star moon"), strict=True))) + "\n", encoding="utf-8")
    answer = command("predict", run, "--file", path)
    assert answer == command("predict", finished_pair_run, "soup bread\tstar moon")
    assert answer.code == 0


def test_another_column(finished_run: Path, tmp_path: Path, command: Command, expected: str) -> None:
    path = tmp_path / "texts.jsonl"
    rows = [{"abstract": text, "text_pair": "ignored by a model of single texts"} for text in TEXTS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert command("predict", finished_run, "--file", path, "--column", "abstract").out == expected
    wrong = command("predict", finished_run, "--file", path, "--column", "abstrct")
    assert wrong.code == 2
    assert "texts.jsonl: no column 'abstrct' for the text, which --column names (did you mean 'abstract'?)" in wrong.err


def test_files_that_do_not_fit_the_model(finished_pair_run: Path, tmp_path: Path, command: Command) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text(json.dumps({"text": "soup", "second": "bread"}) + "\n")
    answer = command("predict", finished_pair_run, "--file", path)
    assert (answer.code, answer.out) == (2, "")
    assert (
        "texts.jsonl: no column 'text_pair' for the second text, which --pair-column names (known: second)"
        in answer.err
    )
    assert command("predict", finished_pair_run, "--file", path, "--pair-column", "second").code == 0


def test_how_a_run_is_tried(finished_run: Path, finished_pair_run: Path) -> None:
    assert trial_line(finished_run) == f'try it: endtask predict {finished_run} "some text"'
    assert trial_line(finished_pair_run).endswith(r"$'some text\tanother text'")


def test_how_a_run_with_a_space_in_its_name_is_tried(finished_run: Path, tmp_path: Path) -> None:
    spaced = tmp_path / "my runs"
    spaced.symlink_to(finished_run)
    assert trial_line(spaced) == f"try it: endtask predict '{spaced}' \"some text\""


def test_standard_input(finished_run: Path, command: Command, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, "\r\n".join(TEXTS).encode())
    assert command("predict", finished_run).out == expected


def test_broken_standard_input(finished_run: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, b"soup\ncaf\xe9\n")
    answer = command("predict", finished_run)
    assert answer.code == 2
    assert answer.err == "endtask: standard input, row 2: not valid UTF-8\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"text": 3}\n', "row 1, key 'text': the text is not a string"),
        ("nonsense\n", "row 1: not valid JSON"),
    ],
)
def test_broken_files(finished_run: Path, tmp_path: Path, command: Command, content: str, said: str) -> None:
    (tmp_path / "new.jsonl").write_text(content)
    answer = command("predict", finished_run, "--file", tmp_path / "new.jsonl")
    assert answer.code == 2
    assert f"new.jsonl, {said}" in answer.err
    assert command("predict", finished_run, "--file", tmp_path / "absent.jsonl").code == 2
    assert command("predict", finished_run, "text", "--file", tmp_path / "new.jsonl").code == 2


def test_the_name_of_a_missing_file_is_no_text(finished_run: Path, command: Command) -> None:
    answer = command("predict", finished_run, "absent.csv")
    assert answer.code == 2
    assert "absent.csv: no such file" in answer.err
    assert command("predict", finished_run, "the", "absent.csv").code == 0, "words, of which one looks like a file"


def test_pairs_with_a_tab(
    finished_pair_run: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [("soup bread", "salt oven"), ("star moon", "orbit sky")]
    predictions = load(finished_pair_run).predict(pairs)
    expected = "".join(f"{one.label}\t{one.probability:.4f}\n" for one in predictions)
    lines = ["\t".join(pair) for pair in pairs]
    assert command("predict", finished_pair_run, *lines).out == expected
    feed(monkeypatch, "\n".join(lines).encode())
    assert command("predict", finished_pair_run).out == expected
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps({"text": one, "text_pair": two}) + "\n" for one, two in pairs))
    assert command("predict", finished_pair_run, "--file", path).out == expected


def test_a_pair_without_its_second_text(finished_pair_run: Path, command: Command) -> None:
    answer = command("predict", finished_pair_run, "soup\tsalt", "soup")
    assert answer.code == 2
    assert answer.err == "endtask: text 2 has no second text (this model was trained on text pairs)\n"


def test_a_tab_means_nothing_to_a_model_of_single_texts(finished_run: Path, command: Command) -> None:
    assert command("predict", finished_run, "soup\tbread").out == command("predict", finished_run, "soup bread").out


class Dribble(io.BytesIO):
    """Hands out a few bytes at a time, as a slow pipe does."""

    def read1(self, size: int | None = -1, /) -> bytes:
        return self.read(3)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\r\n\ufeff", exclude_categories=["Cs"]), min_size=1)))
def test_lines_come_whole_however_they_arrive(lines: list[str]) -> None:
    content = "\n".join(lines).encode()
    for stream in (io.BytesIO(content), Dribble(content)):
        assert [line for batch in arrived_lines(stream) for line in batch] == lines
