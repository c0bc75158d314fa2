"""How well hangs of other people's frameworks are diagnosed."""
