"""Fused kernels: one file each with a plain torch reference, a Triton kernel and, where installed,
NVIDIA apex's.
"""
