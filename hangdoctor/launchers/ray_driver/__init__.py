"""The program that talks to Ray, in a process of its own; see `__main__`."""
