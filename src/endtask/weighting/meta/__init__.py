"""META-TARTAN: weights learned online from the gradient of held-out task loss."""
