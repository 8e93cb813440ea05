"""Learn, load and save Hugging Face fast tokenizers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from endtask.config import TokenizerSettings
from endtask.corpus.sources import HUB_PREFIX
from endtask.errors import InputError
from endtask.io.atomic import write_json
from endtask.io.installed_package import PACKAGE_PREFIX, package_folder
from endtask.io.parsing import read_json
from endtask.tokenization.special_tokens import (
    CLS,
    MASK,
    PAD,
    SEP,
    SPECIAL_TOKENS,
    UNKNOWN,
    add_markers,
    check_markers,
    template_processor,
)
from endtask.tokenization.vocabulary import VocabularySample, learn_bpe, learn_unigram, learn_wordpiece

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.normalizers import Replace
    from transformers import PreTrainedTokenizerFast


__all__ = ["SPECIAL_TOKENS", "load_tokenizer", "save_tokenizer", "train_tokenizer"]

_LEARN: dict[str, Callable[[VocabularySample, TokenizerSettings], Tokenizer]] = {
    "wordpiece": learn_wordpiece,
    "bpe": learn_bpe,
    "unigram": learn_unigram,
}


def train_tokenizer(
    texts: Iterable[str],
    settings: TokenizerSettings,
    max_length: int,
    *,
    max_texts: int | None = None,
    seed: int = 0,
) -> PreTrainedTokenizerFast:
    """Learn a tokenizer from `texts`, which are read several times and must not be a generator.

    The same texts, settings and seed give the same tokenizer, to the byte, in every process. Special tokens have the
    ids 0 to 4 in all kinds, entity markers the next ones. Every letter (in BPE, every byte) is a token, even beyond
    `vocab_size`. `max_texts` is the size of a sample by the seed.

    >>> tokenizer = train_tokenizer(["a cat [[ sat ]]"], TokenizerSettings(entity_markers=("[[", "]]")), 32)
    >>> tokenizer.convert_ids_to_tokens(tokenizer("cat [[ sat ]]")["input_ids"])
    ['[CLS]', 'cat', '[[', 'sat', ']]', '[SEP]']
    """
    from transformers import PreTrainedTokenizerFast

    check_markers(settings.markers, settings.kind)
    normalize = split_capitals if settings.spell_capitals else str
    sample = VocabularySample(texts, limit=max_texts, markers=settings.markers, seed=seed, normalize=normalize)
    if not any(text.strip() for text in sample):
        raise InputError("there is no text to learn a tokenizer from", key="tokenizer")
    tokenizer = _LEARN[settings.kind](sample, settings)
    if settings.spell_capitals:
        _add_capital_splitter(tokenizer)
    tokenizer.post_processor = template_processor()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=max_length,
        pad_token=PAD,
        unk_token=UNKNOWN,
        cls_token=CLS,
        sep_token=SEP,
        mask_token=MASK,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
    add_markers(fast, settings.markers)
    return fast


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Save a tokenizer under a class name that all transformers releases have."""
    tokenizer.save_pretrained(str(folder))
    path = folder / "tokenizer_config.json"
    config = read_json(path)
    if config.get("tokenizer_class") == "TokenizersBackend":
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
        write_json(path, config)


def load_tokenizer(path: str | Path, *, key: str = "tokenizer.path") -> PreTrainedTokenizerFast:
    """Load a tokenizer from a folder, `package:NAME` or `hf:NAME`; raise `InputError` if it does not fit masked LM.

    Only `hf:NAME` uses the hub or its local cache. Special tokens are found by their role, so `<s>` and `</s>` may
    replace [CLS] and [SEP].
    """
    tokenizer = _read(path, key)
    if not tokenizer.is_fast:
        raise InputError("only fast tokenizers can be used", path=path, key=key)
    _check_vocabulary(tokenizer, path, key)
    for role in ("pad_token", "cls_token", "sep_token", "mask_token"):
        if getattr(tokenizer, role) is None:
            raise InputError(f"the tokenizer has no {role}", path=path, key=key)
    # Some files have truncation or padding to a fixed length, which other tools would apply to our model.
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def _read(path: str | Path, key: str) -> PreTrainedTokenizerFast:
    from transformers import AutoTokenizer

    on_hub = str(path).startswith(HUB_PREFIX)
    name = str(path).removeprefix(HUB_PREFIX) if on_hub else str(_folder(path, key))
    if not name:
        raise InputError("not an address on the hub", path=path, key=key, hint="write hf:NAME")
    try:
        return AutoTokenizer.from_pretrained(name, local_files_only=not on_hub, trust_remote_code=False)
    except Exception as error:  # the libraries raise KeyError, plain Exception, ...
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"holds no tokenizer: {reason}", path=path, key=key) from None


def _folder(path: str | Path, key: str) -> Path:
    """Return the local folder of a tokenizer."""
    if str(path).startswith(PACKAGE_PREFIX):
        return package_folder(str(path), key=key)
    if not Path(path).is_dir():
        hint = "name the folder, not a file in it" if Path(path).exists() else f"on the hub it would be hf:{path}"
        raise InputError("no such tokenizer folder", path=path, key=key, hint=hint)
    return Path(path)


def _check_vocabulary(tokenizer: PreTrainedTokenizerFast, path: str | Path, key: str) -> None:
    ids = tokenizer.get_vocab().values()
    # For a model folder without tokenizer files the library returns a tokenizer with special tokens only.
    if len(ids) <= len(tokenizer.all_special_ids):
        raise InputError("holds no tokenizer: no vocabulary there", path=path, key=key)
    if max(ids) >= len(tokenizer):
        raise InputError("the token ids have gaps", path=path, key=key)


@cache
def _capital_splitter() -> Replace:
    from tokenizers import Regex, normalizers

    return normalizers.Replace(Regex(r"(?<=\p{Lu})(?=\p{Lu})"), " ")


def split_capitals(text: str) -> str:
    """Separate consecutive capitals by blanks, so that a model sees the letters of an acronym.

    >>> split_capitals("The DNA of IgE")
    'The D N A of IgE'
    """
    return str(_capital_splitter().normalize_str(text))


def _add_capital_splitter(tokenizer: Tokenizer) -> None:
    """Make splitting capitals the first step of a tokenizer, so that the saved one does it in other tools too."""
    from tokenizers import normalizers

    steps = [_capital_splitter(), *([] if tokenizer.normalizer is None else [tokenizer.normalizer])]
    tokenizer.normalizer = steps[0] if len(steps) == 1 else normalizers.Sequence(steps)
