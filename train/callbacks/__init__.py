"""Training concerns, one file each."""
