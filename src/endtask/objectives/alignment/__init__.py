"""Objectives shaped like the end task: hyperlink spans, acronyms, next sentences, titles, marked relations."""
