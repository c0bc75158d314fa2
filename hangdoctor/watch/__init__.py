"""Pure watchers of a running job: stalls, stragglers, rank states, arrival lag."""
