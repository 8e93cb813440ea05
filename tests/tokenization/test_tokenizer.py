"""Tokenizers: reproducible training, saving, and errors for tokenizers that masked LM cannot use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from endtask.config import TokenizerSettings
from endtask.errors import InputError
from endtask.tokenization.packed_texts import encode
from endtask.tokenization.tokenizer import SPECIAL_TOKENS, load_tokenizer, save_tokenizer, train_tokenizer
from tests.tiny import MAX_LENGTH, make_texts, make_tokenizer

KINDS = ("wordpiece", "bpe", "unigram")

# Random words make many merges of equal count, which is where an unfixed order would show.
TRAIN_AND_SAVE = """
import random, sys
from pathlib import Path
from endtask.config import TokenizerSettings
from endtask.tokenization.tokenizer import save_tokenizer, train_tokenizer
chance = random.Random(0)
words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyzäé中", k=chance.randint(2, 9))) for _ in range(600)]
texts = [" ".join(chance.choices(words, k=12)) for _ in range(200)]
for kind in ("wordpiece", "bpe", "unigram"):
    settings = TokenizerSettings(kind=kind, vocab_size=500, entity_markers=("[[", "]]"))
    save_tokenizer(train_tokenizer(texts, settings, 32, max_texts=150, seed=5), Path(sys.argv[1]) / kind)
"""


@cache
def tokenizer_of(kind: str, *, lowercase: bool = True) -> PreTrainedTokenizerFast:
    chosen = TokenizerSettings.model_validate(
        {"kind": kind, "vocab_size": 320, "lowercase": lowercase, "entity_markers": ("[[", "]]", "<E1>")}
    )
    return train_tokenizer([*make_texts(100), "Some [[ LOUD ]] Words, été 42!"], chosen, MAX_LENGTH)


@pytest.mark.long
def test_every_process_learns_the_same_tokenizers(tmp_path: Path) -> None:
    surroundings = [
        {"PYTHONHASHSEED": "1", "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"},
        {"PYTHONHASHSEED": "2", "RAYON_NUM_THREADS": "3", "TOKENIZERS_PARALLELISM": "true", "OMP_NUM_THREADS": "2"},
    ]
    folders = [tmp_path / str(number) for number in range(len(surroundings))]
    processes = [
        subprocess.Popen([sys.executable, "-c", TRAIN_AND_SAVE, str(folder)], env={**os.environ, **changed})
        for folder, changed in zip(folders, surroundings, strict=True)
    ]
    assert [process.wait() for process in processes] == [0, 0]
    for kind in KINDS:
        first, second = ((folder / kind / "tokenizer.json").read_bytes() for folder in folders)
        assert first == second, kind
        assert len(json.loads(first)["model"]["vocab"]) == 500


@pytest.mark.parametrize("kind", KINDS)
def test_learning_again_in_one_process_gives_the_same(kind: str) -> None:
    # Every hash table of the library has a seed of its own, so this shows what fresh processes show.
    texts = [*make_texts(60), "zig zag zug", "abab baba abba"]
    chosen = TokenizerSettings.model_validate({"kind": kind, "vocab_size": 330})
    learned = {train_tokenizer(texts, chosen, 32).backend_tokenizer.to_str() for _ in range(8)}
    assert len(learned) == 1


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text(max_size=60), pair=st.none() | st.text(max_size=30))
def test_any_text_has_tokens_of_the_vocabulary(kind: str, text: str, pair: str | None) -> None:
    tokenizer = tokenizer_of(kind)
    ((ids, types),) = encode([(text, pair)], tokenizer, MAX_LENGTH)
    assert ids[0] == tokenizer.cls_token_id
    assert ids[-1] == tokenizer.sep_token_id
    assert len(ids) == len(types) <= MAX_LENGTH
    assert all(0 <= number < len(tokenizer) for number in ids)
    assert types == sorted(types)
    tokenizer.decode(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_come_first_and_have_their_roles(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    assert tokenizer.convert_tokens_to_ids(SPECIAL_TOKENS) == [0, 1, 2, 3, 4]
    roles = (tokenizer.pad_token, tokenizer.unk_token, tokenizer.cls_token, tokenizer.sep_token, tokenizer.mask_token)
    assert list(roles) == SPECIAL_TOKENS
    assert sorted(tokenizer.all_special_ids) == [0, 1, 2, 3, 4]
    assert tokenizer("river [MASK]", add_special_tokens=False)["input_ids"][-1] == tokenizer.mask_token_id


@pytest.mark.parametrize(("kind", "size"), [("wordpiece", 90), ("bpe", 290), ("unigram", 90)])
def test_the_vocabulary_has_the_size_asked_for_and_no_gaps(kind: str, size: int) -> None:
    chosen = TokenizerSettings.model_validate({"kind": kind, "vocab_size": size, "entity_markers": ("[[", "]]")})
    compounds = [first.replace(" ", second.split()[0]) for first, second in pairwise(make_texts(100))]
    tokenizer = train_tokenizer(compounds, chosen, MAX_LENGTH)
    assert sorted(tokenizer.get_vocab().values()) == list(range(size))
    assert len(tokenizer) == size


@pytest.mark.parametrize("kind", KINDS)
def test_the_alphabet_is_kept_even_if_the_vocabulary_grows_by_it(kind: str) -> None:
    letters = [chr(number) for number in range(ord("ぁ"), ord("ぁ") + 70)]
    texts = [" ".join(letters), "".join(letters)] * 2
    tokenizer = train_tokenizer(texts, TokenizerSettings.model_validate({"kind": kind, "vocab_size": 64}), MAX_LENGTH)
    assert len(tokenizer) > 64
    assert tokenizer.unk_token_id not in tokenizer("".join(reversed(letters)))["input_ids"]


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_known_letters_never_become_unknown_and_others_do(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    # None of these words was seen, all of their letters were, at a start or not.
    assert tokenizer.unk_token_id not in tokenizer("wrote glass bestow")["input_ids"]
    assert tokenizer.unk_token_id in tokenizer("中")["input_ids"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lowercase", [True, False])
def test_lowercase_is_a_choice(kind: str, lowercase: bool) -> None:
    texts = ["Paris paris PARIS Ärger ärger"] * 3
    chosen = TokenizerSettings.model_validate({"kind": kind, "vocab_size": 64, "lowercase": lowercase})
    tokenizer = train_tokenizer(texts, chosen, MAX_LENGTH)
    assert (tokenizer("Paris Ärger")["input_ids"] == tokenizer("paris ärger")["input_ids"]) is lowercase
    assert tokenizer.unk_token_id not in tokenizer("Paris Ärger")["input_ids"]


@pytest.mark.parametrize("kind", KINDS)
def test_capitals_can_be_spelled(kind: str, tmp_path: Path) -> None:
    texts = ["The DNA binds", "DNA and RNA of IgE"] * 20
    asked = TokenizerSettings(kind=kind, vocab_size=300, spell_capitals=True)
    save_tokenizer(train_tokenizer(texts, asked, 32), tmp_path)
    spelled = load_tokenizer(tmp_path)
    assert spelled.tokenize("DNA") == spelled.tokenize("D N A")
    assert len(spelled.tokenize("DNA")) == 3
    assert spelled.tokenize("binds") != spelled.tokenize("b i n d s")
    plain = train_tokenizer(texts, asked.model_copy(update={"spell_capitals": False}), 32)
    assert len(plain.tokenize("DNA")) == 1
    # What it learned from is what it will see: no token of several capitals is left over.
    assert not any(token.strip("▁Ġ#").lower() == "dna" for token in spelled.get_vocab())


def test_a_sample_of_the_texts_is_drawn_by_the_seed() -> None:
    texts = [chr(ord("a") + number) * 3 for number in range(20)]
    chosen = TokenizerSettings(vocab_size=64)

    def letters(seed: int) -> set[str]:
        vocabulary = train_tokenizer(texts, chosen, 16, max_texts=5, seed=seed).get_vocab()
        return {token for token in vocabulary if len(token) == 1}

    assert len(letters(0)) == 5
    assert letters(0) == letters(0)
    assert any(letters(0) != letters(seed) for seed in range(1, 4))


@pytest.mark.parametrize("texts", [[], ["", "  "], ["[["]], ids=["none", "blank", "marks only"])
def test_without_any_text_nothing_is_learned(texts: list[str]) -> None:
    with pytest.raises(InputError, match="no text to learn a tokenizer from"):
        train_tokenizer(texts, TokenizerSettings(kind="bpe", entity_markers=("[[",)), MAX_LENGTH)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model_type", [None, "bert", "modernbert", "roberta"])
def test_a_saved_folder_loads_anywhere(tmp_path: Path, kind: str, model_type: str | None) -> None:
    lowercase = model_type is None
    tokenizer = tokenizer_of(kind, lowercase=lowercase)
    if model_type:  # beside a model's config.json, from which the library may guess a class
        (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    save_tokenizer(tokenizer, tmp_path)
    loaded = AutoTokenizer.from_pretrained(str(tmp_path))
    firsts, seconds = ["Stone [[river]]", "LOUD", "", "Words " * 20], ["cloud", "", "<E1> apple <e1>", "Window " * 20]
    for arguments in ((firsts,), (firsts, seconds)):
        assert dict(loaded(*arguments, truncation=True)) == dict(tokenizer(*arguments, truncation=True))
    assert loaded.model_max_length == MAX_LENGTH
    assert sorted(loaded.all_special_ids) == [0, 1, 2, 3, 4]
    bare = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert bare.encode("Stone [[river", "cloud").ids == tokenizer("Stone [[river", "cloud")["input_ids"]


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_have_token_types(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
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


def make_roberta_folder(folder: Path, tokenizer_class: str) -> Path:
    """A tokenizer with RoBERTa's names for the special tokens, and no token types."""
    trained = tokenizer_of("bpe").backend_tokenizer.model
    names = {"[PAD]": "<pad>", "[UNK]": "<unk>", "[CLS]": "<s>", "[SEP]": "</s>", "[MASK]": "<mask>"}
    content = json.loads(Tokenizer(trained).to_str())["model"]
    vocabulary = {names.get(token, token): number for token, number in content["vocab"].items()}
    tokenizer = Tokenizer(models.BPE(vocabulary, [tuple(merge) for merge in content["merges"]]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    ends = (("</s>", vocabulary["</s>"]), ("<s>", vocabulary["<s>"]))
    tokenizer.post_processor = processors.RobertaProcessing(*ends, trim_offsets=True, add_prefix_space=False)
    roles = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>", "bos": "<s>", "eos": "</s>"}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=["input_ids", "attention_mask"],
        **{f"{role}_token": token for role, token in roles.items()},
    )
    save_tokenizer(fast, folder)
    (folder / "config.json").write_text('{"model_type": "roberta"}')
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "tokenizer_class": tokenizer_class}))
    return folder


@pytest.mark.parametrize("tokenizer_class", ["PreTrainedTokenizerFast", "RobertaTokenizer"])
def test_roles_have_whatever_name_and_token_types_may_be_missing(tmp_path: Path, tokenizer_class: str) -> None:
    tokenizer = load_tokenizer(make_roberta_folder(tmp_path, tokenizer_class))
    assert (tokenizer.cls_token, tokenizer.sep_token, tokenizer.mask_token) == ("<s>", "</s>", "<mask>")
    pairs = [("river stone", "cloud"), ("green", "a [[ very ]] long second text")]
    for ids, types in encode([*pairs], tokenizer, 9):
        assert ids[0] == tokenizer.cls_token_id
        assert ids[-1] == tokenizer.sep_token_id
        assert types == [0] * len(ids)


def test_a_name_on_the_hub_is_read_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "models--owner--mini"
    save_tokenizer(tokenizer_of("unigram"), kept / "snapshots" / ("0" * 40))
    (kept / "snapshots" / ("0" * 40) / "config.json").write_text('{"model_type": "roberta"}')
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    loaded = load_tokenizer("hf:owner/mini")
    assert loaded("a [[ river")["input_ids"] == tokenizer_of("unigram")("a [[ river")["input_ids"]
    with pytest.raises(InputError, match=r"hf:owner/other, key 'model.path': holds no tokenizer") as raised:
        load_tokenizer("hf:owner/other", key="model.path")
    assert "\n" not in str(raised.value)


def test_an_empty_name_on_the_hub_is_refused() -> None:
    with pytest.raises(InputError, match=r"not an address on the hub \(write hf:NAME\)"):
        load_tokenizer("hf:")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent, key 'tokenizer.path': no such tokenizer folder"):
        load_tokenizer(tmp_path / "absent")
    with pytest.raises(InputError, match="on the hub it would be hf:owner/absent"):
        load_tokenizer("owner/absent")


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    save_tokenizer(make_tokenizer(), tmp_path)
    with pytest.raises(InputError, match="name the folder, not a file in it"):
        load_tokenizer(tmp_path / "tokenizer.json")


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
