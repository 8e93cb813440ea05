"""Objectives shaped like the end task: hyperlinks, acronyms and next sentences."""
