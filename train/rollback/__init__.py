"""Going back to a checkpoint: what is newer moves aside, `latest` points at it, and can be undone."""
