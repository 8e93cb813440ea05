"""TARTAN's image experiment in small: a few classes are the task, all others help."""
