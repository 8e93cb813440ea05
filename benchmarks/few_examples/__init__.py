"""How fast few-example learning is on a CPU, and how long a small model takes for one text."""
