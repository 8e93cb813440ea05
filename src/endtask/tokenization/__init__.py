"""Text to token ids: the tokenizer and the packed token files."""
