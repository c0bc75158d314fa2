"""Readers of evidence: each turns one source into the forms of `hangdoctor.model` and `hangdoctor.operations`."""
