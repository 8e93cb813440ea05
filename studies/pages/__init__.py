"""One template per study: how the rows of its results file become the tables of a page."""
