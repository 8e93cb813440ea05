"""Unigram, as SentencePiece has it: the likeliest way to cut a word; characters it does not know become [UNK]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from endtask.config import TokenizerSettings
from endtask.tokenization.special_tokens import SPECIAL_TOKENS, UNKNOWN
from endtask.tokenization.training_texts import LearningTexts, count_words, find_alphabet
from endtask.tokenization.unigram_trainer import learn_pieces

if TYPE_CHECKING:
    from tokenizers import Tokenizer

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
