"""Train a WordPiece tokenizer on the selection and the task, or load one; saved as a Hugging Face fast tokenizer."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from endtask.errors import InputError
from endtask.files.atomic import write_json
from endtask.settings import TokenizerSettings

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

PAD, UNKNOWN, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = [PAD, UNKNOWN, CLS, SEP, MASK]
ALPHABET_LIMIT = 1000


def train_tokenizer(texts: Iterable[str], settings: TokenizerSettings, max_length: int) -> PreTrainedTokenizerFast:
    """Learn a WordPiece vocabulary from `texts` (read twice: no generator); the same texts give the same vocabulary."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = _wordpiece(_learn_vocabulary(texts, settings), settings)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=max_length,
        pad_token=PAD,
        unk_token=UNKNOWN,
        cls_token=CLS,
        sep_token=SEP,
        mask_token=MASK,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Save under the class name that every transformers release knows."""
    tokenizer.save_pretrained(str(folder))
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    if config.get("tokenizer_class") == "TokenizersBackend":
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
        write_json(path, config)


def load_tokenizer(folder: str | Path) -> PreTrainedTokenizerFast:
    """Load a tokenizer from a local folder and check that masked language modelling can use it."""
    from transformers import AutoTokenizer

    if not Path(folder).is_dir():
        raise InputError("no such tokenizer folder", path=folder, key="tokenizer.path")
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # the libraries raise whatever they trip over: KeyError, plain Exception, ...
        reason = (str(error).splitlines() or [""])[0]
        raise InputError(f"holds no tokenizer: {reason}", path=folder, key="tokenizer.path") from None
    if not tokenizer.is_fast:
        raise InputError("only fast tokenizers can be used", path=folder, key="tokenizer.path")
    _check_vocabulary(tokenizer, folder)
    for role in ("pad_token", "cls_token", "sep_token", "mask_token"):
        if getattr(tokenizer, role) is None:
            raise InputError(f"the tokenizer has no {role}", path=folder, key="tokenizer.path")
    return tokenizer


def _check_vocabulary(tokenizer: PreTrainedTokenizerFast, folder: str | Path) -> None:
    ids = tokenizer.get_vocab().values()
    # From a model's folder without tokenizer files the library makes a tokenizer of special tokens alone.
    if len(ids) <= len(tokenizer.all_special_ids):
        raise InputError("holds no tokenizer: no vocabulary there", path=folder, key="tokenizer.path")
    if max(ids) >= len(tokenizer):
        raise InputError("the numbers of the tokens have gaps", path=folder, key="tokenizer.path")


def _wordpiece(vocabulary: dict[str, int], settings: TokenizerSettings) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN, max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=settings.lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLS}:0 $A:0 {SEP}:0",
        pair=f"{CLS}:0 $A:0 {SEP}:0 $B:1 {SEP}:1",
        special_tokens=[(CLS, vocabulary[CLS]), (SEP, vocabulary[SEP])],
    )
    return tokenizer


def _learn_vocabulary(texts: Iterable[str], settings: TokenizerSettings) -> dict[str, int]:
    """Run the library's trainer with the alphabet fixed beforehand.

    Left alone, the trainer numbers `##x` pieces in the order of a randomly seeded hash table and breaks ties
    between merges by those numbers, so two runs over the same text learn different vocabularies. Pieces handed
    over as special tokens are numbered in the order given, which takes the chance out.
    """
    from tokenizers import trainers

    start = {token: number for number, token in enumerate(SPECIAL_TOKENS)}
    tokenizer = _wordpiece(start, settings)
    characters = Counter[str]()
    for text in texts:
        characters.update(tokenizer.normalizer.normalize_str(text))
    common = sorted(characters, key=lambda character: (-characters[character], character))
    alphabet = sorted(character for character in common[:ALPHABET_LIMIT] if not character.isspace())
    pieces = [*SPECIAL_TOKENS, *alphabet, *(f"##{character}" for character in alphabet)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=max(settings.vocab_size, len(pieces)),
        special_tokens=pieces,
        limit_alphabet=0,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    return vocabulary
