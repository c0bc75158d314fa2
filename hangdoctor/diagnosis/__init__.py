"""Small pure passes over one capture: findings first, words last."""

from .verdict import diagnose, load_all

__all__ = ["diagnose", "load_all"]
