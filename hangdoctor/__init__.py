"""hangdoctor names the rank that hangs a distributed training job, with its evidence."""

from ._version import __version__

__all__ = ["__version__"]
