"""Readers: from what processes, recorders and libraries offer to plain data. None of them needs torch."""
