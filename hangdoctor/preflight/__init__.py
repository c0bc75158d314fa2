"""Checks of nodes before a job: run on every node, compared, shown."""
