"""Between nodes and the collector: messages, keys, links, spool."""
