"""Call tracing inside a rank: the last Python calls in a ring in a mapped file beside its black box
(docs/tracing.md).

Nothing of this package is imported before tracing is asked for, and nothing of it is left in the
interpreter after it was stopped. Standard library only.
"""
