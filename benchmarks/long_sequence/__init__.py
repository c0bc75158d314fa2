"""Sequences from thousands to hundreds of thousands of tokens: which fit, and how fast they go."""
