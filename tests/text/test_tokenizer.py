"""Tokenizers: learned the same everywhere, saved for every user, refused where masked LM cannot use them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from endtask.errors import InputError
from endtask.settings import TokenizerSettings
from endtask.text.tokenizer import SPECIAL_TOKENS, load_tokenizer, save_tokenizer, train_tokenizer
from tests.tiny import MAX_LENGTH, make_texts, make_tokenizer

# Random words make many merges of equal count, which is where an unfixed order would show.
TRAIN_AND_SAVE = """
import random, sys
from pathlib import Path
from endtask.settings import TokenizerSettings
from endtask.text.tokenizer import save_tokenizer, train_tokenizer
chance = random.Random(0)
words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyzäé中", k=chance.randint(2, 9))) for _ in range(600)]
texts = [" ".join(chance.choices(words, k=12)) for _ in range(200)]
save_tokenizer(train_tokenizer(texts, TokenizerSettings(vocab_size=500), 32), Path(sys.argv[1]))
"""


def test_every_process_learns_the_same_tokenizer(tmp_path: Path) -> None:
    surroundings = [
        {"PYTHONHASHSEED": "1", "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        {"PYTHONHASHSEED": "2", "RAYON_NUM_THREADS": "3", "TOKENIZERS_PARALLELISM": "true"},
    ]
    folders = [tmp_path / str(number) for number in range(len(surroundings))]
    processes = [
        subprocess.Popen([sys.executable, "-c", TRAIN_AND_SAVE, str(folder)], env={**os.environ, **changed})
        for folder, changed in zip(folders, surroundings, strict=True)
    ]
    assert [process.wait() for process in processes] == [0, 0]
    first, second = ((folder / "tokenizer.json").read_bytes() for folder in folders)
    assert first == second
    assert len(json.loads(first)["model"]["vocab"]) == 500


def test_special_tokens_come_first_and_have_their_roles() -> None:
    tokenizer = make_tokenizer()
    assert tokenizer.convert_tokens_to_ids(SPECIAL_TOKENS) == [0, 1, 2, 3, 4]
    roles = (tokenizer.pad_token, tokenizer.unk_token, tokenizer.cls_token, tokenizer.sep_token, tokenizer.mask_token)
    assert list(roles) == SPECIAL_TOKENS
    assert sorted(tokenizer.all_special_ids) == [0, 1, 2, 3, 4]


def test_the_vocabulary_has_the_size_asked_for_and_no_gaps() -> None:
    tokenizer = train_tokenizer(make_texts(100), TokenizerSettings(vocab_size=90), MAX_LENGTH)
    assert sorted(tokenizer.get_vocab().values()) == list(range(90))


def test_known_letters_never_become_unknown() -> None:
    tokenizer = make_tokenizer()
    # None of these words was seen, all of their letters were, at a start or not.
    assert tokenizer.unk_token_id not in tokenizer("wrote glass bestow")["input_ids"]
    assert tokenizer.tokenize("中") == ["[UNK]"]


@pytest.mark.parametrize("lowercase", [True, False])
def test_lowercase_is_a_choice(lowercase: bool) -> None:
    texts = ["Paris paris PARIS Ärger"] * 3
    tokenizer = train_tokenizer(texts, TokenizerSettings(vocab_size=64, lowercase=lowercase), MAX_LENGTH)
    assert (tokenizer("Paris Ärger")["input_ids"] == tokenizer("paris arger")["input_ids"]) is lowercase
    assert tokenizer.unk_token_id not in tokenizer("Paris Ärger")["input_ids"]


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("model_type", [None, "bert", "modernbert"])
def test_a_saved_folder_loads_anywhere(tmp_path: Path, lowercase: bool, model_type: str | None) -> None:
    tokenizer = train_tokenizer([*make_texts(50), "Some LOUD Words"], TokenizerSettings(lowercase=lowercase), 8)
    if model_type:  # beside a model's config.json, from which the library may guess a class
        (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    save_tokenizer(tokenizer, tmp_path)
    loaded = AutoTokenizer.from_pretrained(str(tmp_path))
    firsts, seconds = ["Stone river", "LOUD", "", "Words " * 20], ["cloud", "", "green apple", "Window " * 20]
    for arguments in ((firsts,), (firsts, seconds)):
        assert dict(loaded(*arguments, truncation=True)) == dict(tokenizer(*arguments, truncation=True))
    assert loaded.model_max_length == 8
    bare = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert bare.encode("Stone river", "cloud").ids == tokenizer("Stone river", "cloud")["input_ids"]


def test_pairs_have_token_types() -> None:
    tokenizer = make_tokenizer()
    encoding = tokenizer("river", "stone")
    middle = encoding["input_ids"].index(tokenizer.sep_token_id) + 1
    assert encoding["token_type_ids"] == [0] * middle + [1] * (len(encoding["input_ids"]) - middle)


def test_the_saved_class_is_one_that_old_releases_know(tmp_path: Path) -> None:
    save_tokenizer(make_tokenizer(), tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"


def test_a_saved_tokenizer_loads_back(tmp_path: Path) -> None:
    save_tokenizer(make_tokenizer(), tmp_path)
    assert load_tokenizer(tmp_path).get_vocab() == make_tokenizer().get_vocab()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent, key 'tokenizer.path': no such tokenizer folder"):
        load_tokenizer(tmp_path / "absent")


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"config.json": '{"model_type": "bert"}'},
        {"tokenizer.json": '{"cut'},
        {"tokenizer.json": "{}"},
        {"tokenizer.json": '{"version": "1.0", "added_tokens": [], "model": {"type": "Nonsense"}}'},
    ],
    ids=["empty", "a model without tokenizer", "cut off", "empty object", "unknown model"],
)
def test_a_folder_without_a_tokenizer_is_one_line(tmp_path: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match="holds no tokenizer") as raised:
        load_tokenizer(tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("role", ["pad_token", "cls_token", "sep_token", "mask_token"])
def test_a_tokenizer_without_a_needed_token_is_refused(tmp_path: Path, role: str) -> None:
    save_tokenizer(make_tokenizer(), tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    del config[role]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=f"the tokenizer has no {role}"):
        load_tokenizer(tmp_path)


def test_a_tokenizer_with_gaps_between_its_numbers_is_refused(tmp_path: Path) -> None:
    save_tokenizer(make_tokenizer(), tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["model"]["vocab"]["river"] = 5000
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="gaps"):
        load_tokenizer(tmp_path)
