"""One process on each node: it follows the ranks each second and captures them when asked.

The import name is generic, so `hangdoctor agent` asks this marker whether it got its own package.
"""
