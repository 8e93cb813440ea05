"""Few-shot learning on top of pre-trained encoders: how a model does with 50, 200 or 1000 labels."""
