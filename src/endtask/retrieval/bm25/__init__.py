"""Bulk BM25: two passes over the corpus rank its passages for all queries at once."""
