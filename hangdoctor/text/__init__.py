"""Text for people: ranges of ranks, host lists, sizes, and words from the system made printable."""
