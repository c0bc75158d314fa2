"""The live terminal view: `feeds` bring the ranks, `screen` makes lines, `terminal` owns the tty,
`app` the keys.
"""
