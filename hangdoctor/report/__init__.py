"""Formatters that yield lines or HTML from a diagnosis and compute nothing."""
