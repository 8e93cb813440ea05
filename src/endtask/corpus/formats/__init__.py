"""Formats of documents: a file per format, which registers itself."""
