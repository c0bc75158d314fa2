"""All ranks on one time axis: clocks, instances of operations, Perfetto files.

sources     a bundle or black boxes -> `Trace`
instances   which records of which ranks are one operation
clocks      what to add to each node's clock, and how sure that is
build       all of it on one axis -> `Timeline`
stragglers, heatmap, pftrace, stacks, profiler   what is made of it
"""
