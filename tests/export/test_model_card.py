"""The model card: metadata that the hub reads, and parts about data, cost, leaks and limits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard

from endtask.config import Settings
from endtask.export.markdown import cell, code, one_line, plain
from endtask.export.model_card import CardKind, model_card
from endtask.reporting.run_folder import RunFolder
from tests.export.test_model_folder import NASTY, RESULTS, settings_for, without_code

SEEDS = [
    {"seed": 0, "scores": {"macro_f1": 0.6, "accuracy": 0.7}, "leak_free_scores": {"macro_f1": 0.5, "accuracy": 0.6}},
    {"seed": 1, "scores": {"macro_f1": 0.7, "accuracy": 0.8}, "leak_free_scores": {"macro_f1": 0.6, "accuracy": 0.7}},
]


def card_of(settings: Settings | None = None, **options: Any) -> str:
    return model_card(settings or settings_for(), {**RESULTS, "seeds": SEEDS}, 1, ("cat", "dog"), **options)


def test_the_hub_reads_the_scores() -> None:
    data = ModelCard(card_of()).data
    assert {(found.metric_type, round(found.metric_value, 6)) for found in data.eval_results} == {
        ("macro_f1", 0.65),
        ("accuracy", 0.75),
    }
    (one, _) = data.eval_results
    assert (one.task_type, one.dataset_name, one.dataset_split) == ("text-classification", "pets", "test")
    assert (data.library_name, data.pipeline_tag, data.license) == ("transformers", "text-classification", "unknown")


def test_the_table_has_mean_and_standard_deviation_of_every_metric() -> None:
    card = card_of()
    assert "| macro_f1 | 65.0 ± 7.1 | 55.0 ± 7.1 |" in card
    assert "| accuracy | 75.0 ± 7.1 | 65.0 ± 7.1 |" in card
    assert "52 of 139 rows of test have a text that is also in train" in card


def test_interval_and_baselines_on_the_same_rows() -> None:
    baselines = {"interval": [0.5, 0.7123], "majority": {"description": "majority class ('`')", "score": 0.1}}
    results = {**RESULTS, "seeds": SEEDS, "baselines": baselines}
    card = model_card(settings_for(), results, 1, ("cat", "dog"))
    assert "- macro_f1: 95% interval over rows and seeds [50.0, 71.2]." in card
    assert "of the baseline ``" in card
    assert "10.0." in card


def test_licences_and_hyper_parameters() -> None:
    sources = [{"path": "a.txt", "name": "books", "license": "CC BY 4.0"}, {"path": "b.txt"}]
    card = card_of(settings_for(corpus={"sources": sources}, finetune={"epochs": 7, "seeds": [3, 4]}))
    assert "- Corpus `books`, licence `CC BY 4.0`" in card
    assert "- Corpus `b.txt`, licence `not stated`" in card
    assert "The corpus states: `CC BY 4.0`." in card
    assert "| `finetune.epochs` | `7` |" in card
    assert "| `finetune.seeds` | `3, 4` |" in card


def test_the_card_of_a_run_has_data_and_cost_but_no_times(finished_run: Path) -> None:
    card = (finished_run / "model" / "README.md").read_text(encoding="utf-8")
    assert "(60 train, 18 dev, 18 test rows)" in card
    assert "FLOPs (6 x parameters x tokens)" in card
    cost = card.partition("## Cost")[2].partition("##")[0]
    assert not re.search(r"\d s\b|\bmin\b", cost)  # equal settings give equal bits, not equal times
    exported = card_of(run=RunFolder(finished_run), kind=CardKind(with_times=True))
    assert "for all stages" in exported.partition("## Cost")[2]


@pytest.mark.parametrize("text", NASTY)
def test_nothing_that_a_user_names_becomes_markup(text: str) -> None:
    sources = [{"path": "x", "name": text, "license": text}]
    corpus, task = {"sources": sources}, {"path": f"data/{text.replace('/', '')}"}
    card = model_card(settings_for(corpus=corpus, task=task), RESULTS, 1, (text, "dog"))
    plain_card = model_card(
        settings_for(corpus={"sources": [{"path": "x", "license": "y"}]}), RESULTS, 1, ("cat", "dog")
    )
    assert len(card.splitlines()) == len(plain_card.splitlines())
    head = yaml.safe_load(card.split("\n---\n")[0].removeprefix("---\n"))
    assert head["license"] == "unknown"
    text_lines = card.split("\n---\n", 1)[1].splitlines()
    assert not any(re.search(r"(?<!\\)<script|(?<!\\)\]\(http", without_code(line)) for line in text_lines)


def test_texts_in_markdown() -> None:
    assert plain("a*b\x00c") == r"a\*b c"
    assert code("``") == "``` `` ```"
    assert cell("a|`b") == "`` a\\|`b ``"
    assert one_line("\u202edlrow\u2028x") == "dlrow x"
