"""What tests and benchmarks share: starting jobs and steering them, browsers, readers of output.

`jobs/` holds the programs that run as ranks; they import nothing from here.
"""
