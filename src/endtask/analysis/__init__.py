"""What a trained encoder is like inside: its attention heads, and a map of its sentence vectors."""
