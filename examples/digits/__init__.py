"""TARTAN's image experiment at small scale: a few classes are the task, all others the auxiliary task."""
