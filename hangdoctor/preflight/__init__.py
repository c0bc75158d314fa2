"""Checks of nodes before a job: what is checked, compared, run on other nodes, and shown."""
