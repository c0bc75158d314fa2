"""The sidecar: agents and collector wired to diagnosis, incidents, actions and the page."""
