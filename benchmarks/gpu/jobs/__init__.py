"""Programs that the sections start, each a process of its own."""
