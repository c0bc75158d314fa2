"""Jumps of the loss and of the gradient norm, NaN, and a loss scale that slides, from a log or events."""
