"""Few-shot learning on top of pre-trained encoders: scores with 50, 200 or 1000 labels."""
