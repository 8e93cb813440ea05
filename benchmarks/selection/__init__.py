"""Compare the speed of influence scoring with other implementations of the same products."""
