"""Measured claims: programs that measure, and their raw results."""
