"""Inner products of the gradients of single texts, exact, by the cheaper of two strategies per layer."""
