"""A file per command: it parses the arguments and calls a function."""
