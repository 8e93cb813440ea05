"""What a vocabulary is learned from: a sample of the texts without the marks, its words and its letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from endtask.config import TokenizerSettings
from endtask.seeds import generator
from endtask.tokenization.entity_markers import mark_pattern
from endtask.tokenization.special_tokens import SPECIAL_TOKENS, UNKNOWN
from endtask.tokenization.unigram_trainer import learn_pieces

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.models import BPE

ALPHABET_LIMIT = 1000
"""Rarer characters than the thousand most frequent become [UNK]; a byte-level vocabulary has no such limit."""


class LearningTexts:
    """Texts to learn from, in their order; they can be read again and again.

    At most `limit` of them are drawn, by the seed. Marks are cut out, since they are tokens already; `change` is what
    the tokenizer will do to a text first.

    >>> list(LearningTexts(["the [[cat]] sat"], markers=["[[", "]]"]))
    ['the ', 'cat', ' sat']
    """

    def __init__(
        self,
        texts: Iterable[str],
        *,
        limit: int | None = None,
        markers: Sequence[str] = (),
        seed: int = 0,
        change: Callable[[str], str] = str,
    ) -> None:
        if iter(texts) is texts:
            raise TypeError("texts are read several times, which an iterator does not allow: give a list")
        self._texts, self._change = texts, change
        self._markers = mark_pattern(markers) if markers else None
        self._drawn = None if limit is None else _draw(sum(1 for _ in texts), limit, seed)

    def __iter__(self) -> Iterator[str]:
        for position, text in enumerate(self._texts):
            if self._drawn is not None and not self._drawn[position]:
                continue
            pieces = [text] if self._markers is None else filter(None, self._markers.split(text))
            yield from map(self._change, pieces)


def _draw(count: int, limit: int, seed: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of `count` texts are drawn; by raw numbers of the generator, which are the same in every NumPy release."""
    lots = generator(seed, "tokenizer texts").bit_generator.random_raw(count)
    drawn = np.zeros(count, dtype=np.bool_)
    drawn[np.argsort(lots, kind="stable")[:limit]] = True
    return drawn


def count_words(texts: Iterable[str], pieces_of: Callable[[str], Iterable[str]]) -> Counter[str]:
    """How often each piece of a word occurs, where `pieces_of` normalises a word and may cut it further.

    Words are counted before that work is done, once per different word: it is slow.
    """
    words: Counter[str] = Counter()
    for text in texts:
        words.update(text.split())
    pieces: Counter[str] = Counter()
    for word, count in words.items():
        for piece in pieces_of(word):
            pieces[piece] += count
    return pieces


def find_alphabet(words: Mapping[str, int]) -> list[str]:
    """The most frequent characters, in the order of their code points.

    >>> find_alphabet({"bab": 2, "a c": 1})
    ['a', 'b', 'c']
    """
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    common = sorted(counts, key=lambda character: (-counts[character], character))
    return sorted(character for character in common[:ALPHABET_LIMIT] if not character.isspace())


def learn_wordpiece(texts: LearningTexts, settings: TokenizerSettings) -> Tokenizer:
    """Run the library's trainer with the alphabet fixed beforehand.

    Left alone, the trainer numbers `##x` pieces in the order of a randomly seeded hash table and breaks ties
    between merges by those numbers, so two runs over the same text learn different vocabularies. Pieces handed
    over as special tokens are numbered in the order given, which takes the chance out.
    """
    from tokenizers import trainers

    given = [*SPECIAL_TOKENS, *settings.entity_markers]
    tokenizer = _wordpiece({token: number for number, token in enumerate(given)}, settings.lowercase)
    alphabet = find_alphabet(count_words(texts, lambda word: [tokenizer.normalizer.normalize_str(word)]))
    pieces = list(dict.fromkeys([*given, *alphabet, *(f"##{character}" for character in alphabet)]))
    trainer = trainers.WordPieceTrainer(
        vocab_size=max(settings.vocab_size, len(pieces)),
        special_tokens=pieces,
        limit_alphabet=0,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    # Anew from the bare vocabulary: in the trained one, every letter is a special token.
    return _wordpiece(tokenizer.get_vocab(), settings.lowercase)


def _wordpiece(vocabulary: dict[str, int], lowercase: bool) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN, max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def learn_byte_pairs(texts: LearningTexts, settings: TokenizerSettings) -> Tokenizer:
    """Run the library's trainer, which numbers the 256 bytes in a fixed order; no two runs were seen to differ.

    Lower-casing is the only normalisation (letter by letter; accents stay), so that decoding gives back the text, or
    the lower-cased text, exactly. No blank is added in front, for the same reason.
    """
    from tokenizers import pre_tokenizers, trainers

    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocab_size,
        special_tokens=[*SPECIAL_TOKENS, *settings.entity_markers],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer = _byte_pairs(None, settings.lowercase)
    tokenizer.train_from_iterator(texts, trainer)
    # Anew around the bare model: in the trained one, marks are special tokens.
    return _byte_pairs(tokenizer.model, settings.lowercase)


def _byte_pairs(model: BPE | None, lowercase: bool) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(model or models.BPE())
    if lowercase:
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


# Letters, digits and signs never share a piece; each may carry the blank before it.
_WORDS = r"▁?[\p{L}\p{M}]+|▁?\p{N}+|▁?[^▁\p{L}\p{M}\p{N}]+|▁"
# The model may cut text into any piece it has. At this price it never chooses a special token or a mark: those are
# found before it, in the text as written, and "[Cls]" or a mark spelled in capitals is not one.
_NEVER = -1000.0


def learn_unigram(texts: LearningTexts, settings: TokenizerSettings) -> Tokenizer:
    """Count the words and learn the pieces here, not by the library's trainer: see `unigram_pieces`."""
    given = [*SPECIAL_TOKENS, *settings.entity_markers]
    tokenizer = _unigram([(token, _NEVER) for token in given], settings.lowercase)

    def pieces_of(word: str) -> Iterator[str]:
        for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(word)):
            yield piece

    words = count_words(texts, pieces_of)
    learned = learn_pieces(words, find_alphabet(words), settings.vocab_size - len(given))
    pieces = [(piece, score) for piece, score in learned if piece not in given]
    return _unigram([*((token, _NEVER) for token in given), *pieces], settings.lowercase)


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
