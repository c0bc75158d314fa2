"""The version of all of hangdoctor."""

__version__ = "0.2.0"
