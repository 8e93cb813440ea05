"""What is learned: one file per objective."""
