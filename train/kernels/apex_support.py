"""Is NVIDIA's apex here, and does it work? Its name in the package registry belongs to something
else.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util

import torch

FROM_SOURCE = "build NVIDIA's from source: github.com/NVIDIA/apex, with its C++ and CUDA extensions"


def unavailable() -> str:
    """Why apex cannot be used; empty where it can.

    apex without its extensions imports and fails on use: the one sure test is a step of its
    optimizer.
    """
    if importlib.util.find_spec("apex") is None:
        return f"NVIDIA apex is not installed ({FROM_SOURCE})"
    if importlib.util.find_spec("apex.optimizers") is None:
        return f"the installed package apex {_version()} is not NVIDIA's; uninstall it and {FROM_SOURCE}"
    if not torch.cuda.is_available():
        return "apex needs a GPU"
    try:
        from apex.optimizers import FusedAdam

        weight = torch.nn.Parameter(torch.ones(8, device="cuda"))
        weight.grad = torch.ones_like(weight)
        FusedAdam([weight]).step()
    except (ImportError, RuntimeError, ModuleNotFoundError) as error:
        return f"NVIDIA apex is there without its extensions ({error}); {FROM_SOURCE}"
    return ""


def _version() -> str:
    try:
        return importlib.metadata.version("apex")
    except importlib.metadata.PackageNotFoundError:
        return "(of unknown origin)"
