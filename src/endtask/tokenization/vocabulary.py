"""Learn a WordPiece, byte-level BPE or Unigram vocabulary from a sample of texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from endtask.config import TokenizerSettings
from endtask.seeds import generator
from endtask.tokenization.special_tokens import SPECIAL_TOKENS, UNKNOWN, marker_pattern
from endtask.tokenization.unigram_trainer import learn_subwords

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.models import BPE

ALPHABET_LIMIT = 1000
"""Maximum number of characters that are tokens; rarer ones become [UNK]. A byte-level vocabulary has no such limit."""


class VocabularySample:
    """The texts to learn a vocabulary from, in their order; can be read several times.

    The seed selects at most `limit` of them. They are split at entity markers, which are tokens already, and normalised
    by `normalize`, the first step of the tokenizer.

    >>> list(VocabularySample(["the [[cat]] sat"], markers=["[[", "]]"]))
    ['the ', 'cat', ' sat']
    """

    def __init__(
        self,
        texts: Iterable[str],
        *,
        limit: int | None = None,
        markers: Sequence[str] = (),
        seed: int = 0,
        normalize: Callable[[str], str] = str,
    ) -> None:
        if iter(texts) is texts:
            raise TypeError("texts are read several times, which an iterator does not allow: give a list")
        self._texts, self._normalize = texts, normalize
        self._markers = marker_pattern(markers) if markers else None
        self._sampled = None if limit is None else _sample(sum(1 for _ in texts), limit, seed)

    def __iter__(self) -> Iterator[str]:
        for index, text in enumerate(self._texts):
            if self._sampled is not None and not self._sampled[index]:
                continue
            parts = [text] if self._markers is None else filter(None, self._markers.split(text))
            yield from map(self._normalize, parts)


def _sample(count: int, limit: int, seed: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which of `count` texts are sampled; raw random numbers are the same in every NumPy release."""
    keys = generator(seed, "tokenizer texts").bit_generator.random_raw(count)
    sampled = np.zeros(count, dtype=np.bool_)
    sampled[np.argsort(keys, kind="stable")[:limit]] = True
    return sampled


def count_words(texts: Iterable[str], split: Callable[[str], Iterable[str]]) -> Counter[str]:
    """Return the counts of word parts; `split` normalises a word and may split it.

    `split` is slow, so it is called once per distinct word.
    """
    words: Counter[str] = Counter()
    for text in texts:
        words.update(text.split())
    parts: Counter[str] = Counter()
    for word, count in words.items():
        for part in split(word):
            parts[part] += count
    return parts


def find_alphabet(words: Mapping[str, int]) -> list[str]:
    """Return the most frequent characters, sorted by code point.

    >>> find_alphabet({"bab": 2, "a c": 1})
    ['a', 'b', 'c']
    """
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    common = sorted(counts, key=lambda character: (-counts[character], character))
    return sorted(character for character in common[:ALPHABET_LIMIT] if not character.isspace())


def learn_wordpiece(texts: VocabularySample, settings: TokenizerSettings) -> Tokenizer:
    """Learn a WordPiece tokenizer, as of BERT, with the library's trainer and a fixed alphabet.

    By default the trainer numbers `##x` subwords in the order of a randomly seeded hash table and breaks ties between
    merges by those numbers, so two runs over the same text learn different vocabularies. It numbers special tokens in
    their order, so we pass these subwords as special tokens.
    """
    from tokenizers import trainers

    reserved = [*SPECIAL_TOKENS, *settings.markers]
    tokenizer = _wordpiece({token: index for index, token in enumerate(reserved)}, settings.lowercase)
    alphabet = find_alphabet(count_words(texts, lambda word: [tokenizer.normalizer.normalize_str(word)]))
    fixed = list(dict.fromkeys([*reserved, *alphabet, *(f"##{character}" for character in alphabet)]))
    trainer = trainers.WordPieceTrainer(
        vocab_size=max(settings.vocab_size, len(fixed)),
        special_tokens=fixed,
        limit_alphabet=0,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    # A new tokenizer from the vocabulary, since in the trained one every letter is a special token.
    return _wordpiece(tokenizer.get_vocab(), settings.lowercase)


def _wordpiece(vocabulary: dict[str, int], lowercase: bool) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN, max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def learn_bpe(texts: VocabularySample, settings: TokenizerSettings) -> Tokenizer:
    """Learn a byte-level BPE tokenizer, as of GPT-2 and RoBERTa, with the library's trainer.

    The trainer numbers the 256 bytes in a fixed order; we have seen no difference between runs. Lower-casing is the
    only normalisation (letter by letter, without removing accents), and no blank is added in front, so that decoding
    returns the text, or the lower-cased text, exactly.
    """
    from tokenizers import pre_tokenizers, trainers

    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocab_size,
        special_tokens=[*SPECIAL_TOKENS, *settings.markers],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer = _byte_pairs(None, settings.lowercase)
    tokenizer.train_from_iterator(texts, trainer)
    # A new tokenizer from the model, since in the trained one markers are special tokens.
    return _byte_pairs(tokenizer.model, settings.lowercase)


def _byte_pairs(model: BPE | None, lowercase: bool) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(model or models.BPE())
    if lowercase:
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


# Letters, digits and punctuation never share a subword; each may include the blank before it.
_WORDS = r"▁?[\p{L}\p{M}]+|▁?\p{N}+|▁?[^▁\p{L}\p{M}\p{N}]+|▁"
# The model may split text into any token of its vocabulary. With this score it never selects a special token or a
# marker: the tokenizer finds these before the model, in the original text, where "[Cls]" or a marker in other case is
# none.
_NEVER = -1000.0


def learn_unigram(texts: VocabularySample, settings: TokenizerSettings) -> Tokenizer:
    """Learn a Unigram tokenizer, as of SentencePiece, with the trainer of unigram_trainer.py."""
    reserved = [*SPECIAL_TOKENS, *settings.markers]
    tokenizer = _unigram([(token, _NEVER) for token in reserved], settings.lowercase)

    def split(word: str) -> Iterator[str]:
        for part, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(word)):
            yield part

    words = count_words(texts, split)
    learned = learn_subwords(words, find_alphabet(words), settings.vocab_size - len(reserved))
    subwords = [(subword, score) for subword, score in learned if subword not in reserved]
    return _unigram([*((token, _NEVER) for token in reserved), *subwords], settings.lowercase)


def _unigram(vocabulary: list[tuple[str, float]], lowercase: bool) -> Tokenizer:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.Unigram(vocabulary, SPECIAL_TOKENS.index(UNKNOWN), byte_fallback=False))
    steps = [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    tokenizer.normalizer = normalizers.Sequence([*steps, *([normalizers.Lowercase()] if lowercase else [])])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Split(Regex(_WORDS), "isolated")]
    )
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer
