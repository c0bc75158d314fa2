"""Each turns one source of evidence into `model.capture` and knows nothing of the others."""
