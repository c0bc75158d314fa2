"""The node agents: what runs beside the ranks, one process a node.

The import name is generic, so `hangdoctor agent` asks this marker whether it got its own package.
"""
