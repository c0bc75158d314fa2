"""Agents and collector wired to diagnosis, incidents, actions and the page."""
