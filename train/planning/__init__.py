"""Layouts of a model over GPUs before any is taken: memory, time and sizes, from numbers alone."""
