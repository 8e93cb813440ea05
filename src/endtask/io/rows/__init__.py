"""Formats of tables: a file per format, which registers itself."""
