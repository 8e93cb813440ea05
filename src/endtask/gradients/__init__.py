"""Inner products of the gradients of single texts, exact, by the cheaper way per layer."""
