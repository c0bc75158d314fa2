"""Launchers: how a capture reaches the nodes of a job. One file each; `base` says what they share."""
