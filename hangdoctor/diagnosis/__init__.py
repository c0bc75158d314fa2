"""Small pure passes over one capture: findings first, words last."""

from .verdict import diagnose

__all__ = ["diagnose"]
