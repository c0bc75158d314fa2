"""In which kind of wait a thread is, by the rules of `place_rules.toml`."""
