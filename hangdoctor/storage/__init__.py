"""On disk: bundles, incidents, and operations in columns."""
