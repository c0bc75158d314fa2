"""What a stack says: in which kind of wait a thread is. The rules are in `place_rules.toml`."""
