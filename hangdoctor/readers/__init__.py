"""Readers: each turns one source of evidence into `hangdoctor.model.capture`, and knows nothing of the others."""
