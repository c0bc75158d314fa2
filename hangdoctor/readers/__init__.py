"""Readers: each turns one source of evidence into `hangdoctor.model`, and knows nothing of the others."""
