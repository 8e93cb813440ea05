"""The data from outside a run: what identifies it, and the copies that a bundle brings along where it is not."""
