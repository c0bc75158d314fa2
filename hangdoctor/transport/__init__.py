"""Between nodes and the collector: messages, keys, links, the spool, and a node's capture on its way."""
