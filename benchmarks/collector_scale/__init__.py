"""From trigger to verdict with very many nodes: `python -m benchmarks.collector_scale [--nodes 128
512]`.
"""
