"""The diagnosis: small pure passes over a capture. `diagnose` runs them all."""

from .verdict import diagnose

__all__ = ["diagnose"]
