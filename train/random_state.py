"""Random numbers while training: dropout that differs where it must.

Inside tensor parallel regions each rank draws its own numbers (it holds other heads, other tokens);
outside all draw the same ones. Weights at the start are drawn in `train/initial.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint


class RandomState:
    """The default stream of the process and a second one for tensor parallel regions."""

    def __init__(self, seed: int, pp: int, dp: int, tp: int, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._set_seed(seed + 2718 + 100 * pp + 10_007 * dp + 1_000_003 * (tp + 1))
        self._tensor = self._get()
        self._set_seed(seed + 100 * pp + 10_007 * dp)

    def _set_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def _get(self) -> torch.Tensor:
        return torch.cuda.get_rng_state() if self._cuda else torch.get_rng_state()

    def _set(self, state: torch.Tensor) -> None:
        if self._cuda:
            torch.cuda.set_rng_state(state)
        else:
            torch.set_rng_state(state)

    @contextmanager
    def tensor_parallel(self) -> Iterator[None]:
        """Draw from this rank's own stream."""
        outside = self._get()
        self._set(self._tensor)
        try:
            yield
        finally:
            self._tensor = self._get()
            self._set(outside)

    def state(self) -> dict[str, torch.Tensor]:
        """All generators' states, for a checkpoint."""
        return {
            "default": self._get().clone(),
            "tensor_parallel": self._tensor.clone(),
            "cpu": torch.get_rng_state(),
        }

    def restore(self, state: dict[str, torch.Tensor]) -> None:
        """Set all generators as `state` had them."""
        torch.set_rng_state(state["cpu"])
        self._set(state["default"])
        self._tensor = state["tensor_parallel"].clone()

    def recompute(self, function: Callable[..., Any], *inputs: torch.Tensor | None) -> Any:
        """Activation checkpointing: run `function` now and again in the backward pass, with the
        same dropout.

        torch keeps the default stream; the second stream is kept here.
        """
        before, first = self._tensor, True

        def run(*args: torch.Tensor | None) -> Any:
            nonlocal first
            if first:
                first = False
                return function(*args)
            later, self._tensor = self._tensor, before
            try:
                return function(*args)
            finally:
                self._tensor = later

        return checkpoint(run, *inputs, use_reentrant=False)
