"""Bulk BM25 against its peers: the same passages, the same words, two cores each, one process per measurement."""
