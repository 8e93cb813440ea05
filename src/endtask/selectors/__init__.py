"""Selectors: which passages a run trains on. base.py holds the contract; each selector is one file."""
