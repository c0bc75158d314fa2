"""Running one program in several ways, and comparing all that can be seen of it."""
