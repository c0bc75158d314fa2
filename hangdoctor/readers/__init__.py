"""From sources of evidence to `model.capture`: one file for each source, and those that join them."""
