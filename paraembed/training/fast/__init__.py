"""The fast forms of the training step, on CPU and GPU."""
