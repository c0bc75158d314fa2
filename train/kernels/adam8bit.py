"""AdamW with moments of 8 bits (Dettmers et al. 2021, arXiv:2110.02861), from the package
bitsandbytes.

Blocks of 256 moments share a scale. With ZeRO-1 the optimizer sees flat partitions: blocks run
across parameters, and which share one depends on the data parallel size.
"""

from __future__ import annotations

import dataclasses
import importlib
import logging
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..config import Config
from ..options import ConfigError

if TYPE_CHECKING:  # the checks before a training ask here, and import no torch
    import torch

    from .registry import Kernels

PACKAGE = "bitsandbytes"
FIRST = (0, 50)  # the version that was run here: earlier ones may have no code for a CPU
INSTALL = "pip install --no-deps 'bitsandbytes>=0.50'"  # torch, numpy and packaging are there


def adam8bit_complaints(config: Config, _: object) -> Iterator[str]:
    """Why `--optimizer.kind adam8bit` cannot be used here; for `train.validate`."""
    if config.optimizer.kind != "adam8bit":
        return
    if find_spec(PACKAGE) is None:
        yield f"--optimizer.kind adam8bit needs the package {PACKAGE}: {INSTALL}"
    if config.checkpoint.universal:
        yield "--checkpoint.universal with --optimizer.kind adam8bit: the universal format has moments of 32 bits alone"


def with_adam8bit(kernels: Kernels) -> Kernels:
    """The same kernels with this optimizer.

    Raises:
        ConfigError: bitsandbytes is missing, too old or broken.
    """
    load()
    used = {**kernels.used, "adam": PACKAGE}
    return dataclasses.replace(kernels, adam=adam8bit, used=used)


def load() -> Any:
    """The package, without its remarks on products of 4 bits that it has no code for here.

    Raises:
        ConfigError: it is missing, too old or broken.
    """
    logging.getLogger(PACKAGE).setLevel(logging.ERROR)
    try:
        package = importlib.import_module(PACKAGE)
    except Exception as error:  # its own libraries fail in many ways
        raise ConfigError(f"--optimizer.kind adam8bit: {PACKAGE}: {error}; {INSTALL}") from error
    found = tuple(int(part) for part in package.__version__.split(".")[:2])
    if found < FIRST:
        raise ConfigError(
            f"--optimizer.kind adam8bit: {PACKAGE} {package.__version__} is installed: {INSTALL}"
        )
    return package


def adam8bit(groups: Any, **options: Any) -> torch.optim.Optimizer:
    """The optimizer; tensors below 4096 elements keep moments of 32 bits."""
    made: torch.optim.Optimizer = load().optim.AdamW8bit(groups, weight_decay=0.0, **options)
    return made
