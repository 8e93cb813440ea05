"""Byte-level BPE, as GPT-2 and RoBERTa have it: any text, and decoding gives the same text back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from endtask.config import TokenizerSettings
from endtask.tokenization.special_tokens import SPECIAL_TOKENS
from endtask.tokenization.training_texts import LearningTexts

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.models import BPE


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
