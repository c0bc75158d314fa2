"""The profiler plugin that NCCL loads into a rank: what its collectives, sends and receives came
to.
"""
