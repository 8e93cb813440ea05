"""Evidence for aligned objectives: concept tagging and acronym detection from a few labels."""
