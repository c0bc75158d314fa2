"""Saving and resuming: DeepSpeed's folders, made whole or not at all."""
