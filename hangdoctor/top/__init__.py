"""`hangdoctor top`: `sources` say where the ranks are, `screen` makes lines of it, `terminal` owns the tty, `app` the keys."""
