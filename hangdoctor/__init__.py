"""hangdoctor names the rank that hangs a distributed training, with its evidence."""

from ._version import __version__

__all__ = ["__version__"]
