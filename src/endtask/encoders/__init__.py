"""The encoder, its heads, and conversion to Hugging Face weights."""
