"""Influence selection (ISS): keep the texts whose gradients agree with those of the task."""
