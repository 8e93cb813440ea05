"""What larger corpora and more processes cost, and how far the simulator's predictions are off."""
