"""Which objective runs at a step and how much it counts: one file per rule."""
