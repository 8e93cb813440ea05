"""The words of `words_of` for tantivy, which cuts them itself."""

from __future__ import annotations


def word_expression() -> str:
    """What a word is in folded text, as an expression of Rust's `regex`."""
    ideographs = r"\x{3007}\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAFF}\x{20000}-\x{3FFFF}"
    return rf"[\p{{L}}\p{{N}}\p{{M}}--[{ideographs}]]+|[\p{{L}}\p{{N}}\p{{M}}&&[{ideographs}]]"
