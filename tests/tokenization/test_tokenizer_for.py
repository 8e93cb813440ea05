"""The tokenizer of a run: the named one, the model's, or a trained one."""

from __future__ import annotations

from pathlib import Path

import pytest

from endtask.config import Settings, TokenizerSettings
from endtask.errors import InputError
from endtask.io.selection_table import write_selection
from endtask.records import Document, Example, Selected
from endtask.task import Task
from endtask.tokenization.packing import tokenizer_for
from endtask.tokenization.tokenizer import save_tokenizer, train_tokenizer
from tests.tiny import make_texts


def make_task() -> Task:
    texts = make_texts(8)
    splits = {
        "train": [Example(f"t{n}", texts[n], "ab"[n % 2]) for n in range(4)],
        "dev": [Example(f"d{n}", texts[4 + n], "ab"[n % 2]) for n in range(4)],
    }
    return Task.from_examples("tiny", splits)


@pytest.fixture
def selection(tmp_path: Path) -> Path:
    path = tmp_path / "selection.parquet"
    documents = [Document(str(n), text, "corpus") for n, text in enumerate(make_texts(30, seed=3))]
    write_selection(path, [Selected(document, 0, 1, 1.0, 1, ("t0",), "best_rank") for document in documents])
    return path


def given_folder(folder: Path, *texts: str) -> str:
    save_tokenizer(train_tokenizer([*texts], TokenizerSettings(vocab_size=64), 16), folder)
    return str(folder)


def test_one_is_learned_as_long_as_the_longest_text(selection: Path) -> None:
    lengths = {"pretrain": {"max_length": 24, "task_max_length": 40}, "finetune": {"max_length": 12}}
    chosen = Settings.model_validate(
        {"tokenizer": {"kind": "unigram", "vocab_size": 64, "entity_markers": ["[["]}, **lengths}
    )
    tokenizer = tokenizer_for(make_task(), selection, chosen)
    assert tokenizer.model_max_length == 40
    assert 30 < len(tokenizer) <= 64
    assert tokenizer.convert_tokens_to_ids("[[") == 5


def test_the_seed_of_the_run_draws_the_texts(selection: Path) -> None:
    def vocabulary(seed: int) -> dict[str, int]:
        chosen = Settings.model_validate({"seed": seed, "tokenizer": {"vocab_size": 64}})
        found: dict[str, int] = tokenizer_for(make_task(), selection, chosen, max_texts=2).get_vocab()
        return found

    assert vocabulary(1) == vocabulary(1)
    assert len({tuple(sorted(vocabulary(seed))) for seed in range(4)}) > 1


def test_a_given_model_brings_its_own_and_a_named_one_goes_before(selection: Path, tmp_path: Path) -> None:
    model = given_folder(tmp_path / "model", "zebra quiz")
    mine = given_folder(tmp_path / "mine", "xylophone")
    of_model = tokenizer_for(make_task(), selection, Settings.model_validate({"model": {"path": model}}))
    assert "z" in of_model.get_vocab()
    both = Settings.model_validate({"model": {"path": model}, "tokenizer": {"path": mine, "entity_markers": ["[["]}})
    named = tokenizer_for(make_task(), selection, both)
    assert "z" not in named.get_vocab()
    assert named.convert_tokens_to_ids("[[") == len(named) - 1


def test_what_is_wrong_with_a_models_tokenizer_is_said_of_the_model(selection: Path, tmp_path: Path) -> None:
    chosen = Settings.model_validate({"model": {"path": str(tmp_path / "absent")}})
    with pytest.raises(InputError, match=r"absent, key 'model.path': no such tokenizer folder"):
        tokenizer_for(make_task(), selection, chosen)
