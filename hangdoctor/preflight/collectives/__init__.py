"""Timed collectives between nodes, and the search for the node or link that fails or is slow."""
