"""The model folder: the best seed on dev, loadable by plain transformers, with a safe model card."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from endtask.config import Settings
from endtask.encoders.network import Network
from endtask.encoders.weights import save_weights
from endtask.export.model_card import model_card
from endtask.export.model_folder import best_seed, save_model
from endtask.io.atomic import write_json
from endtask.records import Example
from endtask.task import Task
from endtask.tokenization.tokenizer import save_tokenizer
from tests.tiny import ARCHITECTURES, LABELS, MAX_LENGTH, make_network, make_tokenizer

RESULTS: dict[str, Any] = {
    "split": "test",
    "rows": 139,
    "leak_free_rows": 87,
    "summary": {
        "metric": "macro_f1",
        "mean": 0.6123,
        "std": 0.0151,
        "leak_free_mean": 0.5432,
        "leak_free_std": 0.02,
    },
    "seeds": [{"seed": 0}, {"seed": 1}, {"seed": 2}],
}


def settings_for(**values: Any) -> Settings:
    return Settings.model_validate({"task": {"path": "data/pets"}, **values})


def write_results(folder: Path, dev: dict[int, float], metric: str = "macro_f1") -> None:
    for seed, score in dev.items():
        (folder / f"seed-{seed}").mkdir(parents=True)
        scores = {"accuracy": 1.0 - score, "micro_f1": 1.0 - score, "macro_f1": 1.0 - score, metric: score}
        write_json(folder / f"seed-{seed}" / "result.json", {"seed": seed, "dev": scores})


@pytest.mark.parametrize(
    ("dev", "chosen"),
    [({0: 0.5, 1: 0.7, 2: 0.6}, 1), ({5: 0.7, 1: 0.7, 3: 0.2}, 5), ({4: 0.0}, 4)],
)
def test_the_best_seed_on_dev_and_the_earlier_of_equals(tmp_path: Path, dev: dict[int, float], chosen: int) -> None:
    write_results(tmp_path, dev)
    assert best_seed(tmp_path, settings_for(finetune={"seeds": list(dev)}), "macro_f1")["seed"] == chosen


def test_the_metric_of_the_settings_decides(tmp_path: Path) -> None:
    write_results(tmp_path, {0: 0.9, 1: 0.1}, metric="accuracy")
    for metric, chosen in (("accuracy", 0), ("macro_f1", 1)):
        assert best_seed(tmp_path, settings_for(finetune={"seeds": [0, 1]}), metric)["seed"] == chosen


def test_the_card_says_what_was_measured_and_where() -> None:
    corpus = {"sources": [{"path": "text/*.txt", "name": "books"}, {"path": "notes.csv"}]}
    card = model_card(settings_for(corpus=corpus), RESULTS, 1, ("cat", "dog"))
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "# pets\n" in card
    assert "`data/pets`" in card
    assert "`books`, `notes.csv`" in card
    assert "- Labels: `cat`, `dog`\n" in card
    assert "macro_f1 on test (139 rows)" in card
    assert "61.2 ± 1.5" in card
    assert "87 rows whose text is not in train: 54.3 ± 2.0" in card
    assert "3 fine-tuning seeds" in card
    assert "seed 1, the best on dev" in card


def test_the_card_without_corpus_and_without_leak_free_rows() -> None:
    summary = {"metric": "accuracy", "mean": 1.0, "std": 0.0}
    results = {**RESULTS, "split": "dev", "leak_free_rows": 0, "summary": summary}
    card = model_card(settings_for(), results, 0, ("a", "b"))
    assert "accuracy on dev (139 rows)" in card
    assert "the 0 rows whose text is not in train: no such rows" in card
    assert "no corpus" in card


def test_the_card_says_what_the_weights_come_from() -> None:
    card = model_card(settings_for(), RESULTS, 1, ("a", "b"))
    assert "trained from random weights with endtask" in card
    card = model_card(settings_for(model={"path": "my`bert"}), RESULTS, 1, ("a", "b"))
    assert "trained from `` my`bert `` with endtask" in card
    one = {**RESULTS, "seeds": [{"seed": 0}]}
    card = model_card(settings_for(skip_finetuning=True), one, 0, ("a", "b"))
    assert "the best on dev" not in card
    assert "no fine-tuning" in card
    assert "fine-tuning seeds" not in card


def test_the_card_says_what_becomes_of_long_texts() -> None:
    assert "truncated to 128 tokens" in model_card(settings_for(), RESULTS, 0, ("a", "b"))
    finetune = {"max_length": 64, "window_stride": 48}
    card = model_card(settings_for(finetune=finetune), RESULTS, 0, ("a", "b"))
    assert "more than 64 tokens were split into windows that start 48 tokens apart" in card


NASTY = [
    "a`b",
    "``",
    "two\nlines\n# heading",
    "---\nlicense: stolen",
    "<script>alert(1)</script>",
    "[click](http://example.org)",
    "tab\tand\rreturn",
    "line\u2028separator",
    " ",
]


def without_code(line: str) -> str:
    """A line of Markdown with its code spans taken out, by the rule of CommonMark."""
    return re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", "", line)


@pytest.mark.parametrize("label", NASTY)
def test_labels_stay_inside_their_code_span(label: str) -> None:
    card = model_card(settings_for(), RESULTS, 0, ("good", label, "other"))
    plain = model_card(settings_for(), RESULTS, 0, ("good", "bad", "other"))
    assert len(card.splitlines()) == len(plain.splitlines()), "a label must not add lines"
    (line,) = (line for line in card.splitlines() if line.startswith("- Labels:"))
    assert without_code(line) == "- Labels: , , "


@pytest.mark.parametrize("path", [f"data/{text}" for text in NASTY if "/" not in text] + ["`/`", "x/<b>y"])
def test_the_task_path_adds_no_markup(path: str) -> None:
    card = model_card(settings_for(task={"path": path}), RESULTS, 0, ("a", "b"))
    plain = model_card(settings_for(), RESULTS, 0, ("a", "b"))
    assert len(card.splitlines()) == len(plain.splitlines())
    assert card.count("\n---\n") == 1
    title = next(line for line in card.splitlines() if line.startswith("# "))
    assert re.search(r"(?<!\\)[`<>\[\]]", title) is None


def logits(network: Network, text: str) -> torch.Tensor:
    """Class logits of one text by the stock classifier made from the network's weights."""
    from endtask.encoders.huggingface import to_classifier

    with torch.inference_mode():
        return to_classifier(network)(**make_tokenizer()(text, return_tensors="pt")).logits


def make_task() -> Task:
    rows = [Example(str(row), f"text {row}", LABELS[row % len(LABELS)]) for row in range(60)]
    return Task.from_examples("any", {"train": rows})


def save(architecture: str, folder: Path, **settings: Any) -> tuple[Path, Network, dict[str, Any]]:
    """A model folder made from two seeds, of which seed 1 is the better."""
    write_results(folder / "finetune", {0: 0.4, 1: 0.6})
    networks = {seed: make_network(architecture, seed=seed) for seed in (0, 1)}
    for seed, network in networks.items():
        save_weights(folder / "finetune" / f"seed-{seed}" / "best.safetensors", network)
    save_tokenizer(make_tokenizer(), folder / "pack" / "tokenizer")
    (folder / "evaluate").mkdir()
    write_json(folder / "evaluate" / "results.json", RESULTS)
    finetune = {"seeds": [0, 1], "max_length": 12, **settings.pop("finetune", {})}
    stages = (folder / "pack", folder / "finetune", folder / "evaluate")
    network = make_network(architecture, seed=5, dropout=0.25)
    counts = save_model(network, make_task(), *stages, settings_for(finetune=finetune, **settings), folder / "model")
    return folder / "model", networks[int(counts["seed"])], counts


@pytest.fixture(params=ARCHITECTURES)
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Network, dict[str, Any]]:
    """A saved model of every architecture."""
    return save(request.param, tmp_path)


def test_a_saved_folder_is_whole_and_loads_anywhere(saved: tuple[Path, Network, dict[str, Any]]) -> None:
    folder, network, counts = saved
    names = {"README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert names <= {path.name for path in folder.iterdir()}
    assert counts["seed"] == 1
    assert counts["dev"]["macro_f1"] == 0.6
    model = AutoModelForSequenceClassification.from_pretrained(folder, local_files_only=True).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    assert tuple(model.config.id2label.values()) == LABELS
    text = "river stone cloud"
    with torch.inference_mode():
        found = model(**tokenizer(text, return_tensors="pt")).logits
    torch.testing.assert_close(found, logits(network, text))


def test_the_folder_remembers_length_and_dropout(saved: tuple[Path, Network, dict[str, Any]]) -> None:
    folder, network, _ = saved
    assert MAX_LENGTH != 12
    assert AutoTokenizer.from_pretrained(folder, local_files_only=True).model_max_length == 12
    config = json.loads((folder / "config.json").read_text())
    key = "hidden_dropout_prob" if network.architecture.name in ("bert", "roberta") else "mlp_dropout"
    assert config[key] == 0.25
    assert "`no`, `perhaps`, `yes`" in (folder / "README.md").read_text(encoding="utf-8")


def test_the_tokenizer_gives_just_what_the_model_takes(saved: tuple[Path, Network, dict[str, Any]]) -> None:
    folder, network, _ = saved
    given = AutoTokenizer.from_pretrained(str(folder))("river stone", "cloud")
    assert set(given) == set(network.architecture.input_names)


def test_the_cards_own_example_reads_texts_of_any_length(saved: tuple[Path, Network, dict[str, Any]]) -> None:
    """The code block of the card, run as it stands but for the path."""
    folder, _, _ = saved
    block = re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {}
    exec(block[1].replace("path/to/this/folder", str(folder)), names)
    (short,), (long,) = names["classify"]("river"), names["classify"]("river stone cloud " * 50)
    assert {short["label"], long["label"]} <= set(LABELS)


def test_a_model_that_reads_by_windows_says_so_to_prediction(tmp_path: Path) -> None:
    folder, _, _ = save("lean", tmp_path / "windows", finetune={"window_stride": 7})
    assert json.loads((folder / "endtask.json").read_text()) == {"window_stride": 7}
    plain, _, _ = save("lean", tmp_path / "plain")
    assert not (plain / "endtask.json").exists()


def test_without_stage_2_the_first_seed_is_all_there_is(tmp_path: Path) -> None:
    folder, network, counts = save("lean", tmp_path, skip_finetuning=True)
    assert counts["seed"] == 0
    text = "river stone cloud"
    model = AutoModelForSequenceClassification.from_pretrained(folder, local_files_only=True).eval()
    with torch.inference_mode():
        found = model(**AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")).logits
    torch.testing.assert_close(found, logits(network, text))


def test_files_have_the_permissions_of_other_files(finished_run: Path) -> None:
    modes = {file.name: file.stat().st_mode & 0o777 for file in finished_run.rglob("*") if file.is_file()}
    assert set(modes.values()) == {modes["settings.yaml"]}
