"""Megatron's tensor and sequence parallelism, and Ulysses' all-to-all."""
