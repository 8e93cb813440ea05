"""Types of tasks, one file each: how they are read, learned, scored and predicted."""
