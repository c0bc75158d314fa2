"""Text for people: ranges of ranks, host lists, sizes, printable words, redaction."""
