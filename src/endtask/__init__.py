"""Turn a labelled task and a large pile of text into a small language model made for that task."""
