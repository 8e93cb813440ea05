"""Text to token ids: tokenizers and packed token files."""
