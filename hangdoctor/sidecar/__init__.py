"""The process of the collector: diagnosis, incidents, actions and the page are wired to it here.

Beside the ranks run the agents, not this.
"""
