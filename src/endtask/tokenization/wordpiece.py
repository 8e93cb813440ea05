"""WordPiece: words and punctuation apart, as BERT has them; what it does not know becomes [UNK]."""

from __future__ import annotations

from typing import TYPE_CHECKING

from endtask.config import TokenizerSettings
from endtask.tokenization.special_tokens import SPECIAL_TOKENS, UNKNOWN
from endtask.tokenization.training_texts import LearningTexts, count_words, find_alphabet

if TYPE_CHECKING:
    from tokenizers import Tokenizer


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
