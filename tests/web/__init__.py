"""A package of its own, so that its live job and browser end after its last test and not with the worker."""
