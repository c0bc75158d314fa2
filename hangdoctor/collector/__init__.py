"""A state machine that decides (`state`) and a server that moves bytes (`server`)."""
