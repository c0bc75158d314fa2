"""Reports: formatters that yield lines from a diagnosis and compute nothing."""
