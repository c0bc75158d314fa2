"""64 bits, norm and largest value of a tensor, computed where it lies and fetched all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

_CHUNK = 1 << 20  # elements whose bits are widened together: 8 MB
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _signed(value: int) -> int:
    """The 64-bit pattern as torch's signed integer."""
    return value - (1 << 64) if value >= 1 << 63 else value


_FIRST = _signed(0x9E3779B97F4A7C15)
_SECOND = _signed(0xBF58476D1CE4E5B9)
_THIRD = _signed(0x94D049BB133111EB)


@dataclass(frozen=True)
class Fingerprint:
    """`norm` and `largest` are None of what is no floating point number."""

    hash: str
    norm: float | None
    largest: float | None


@lru_cache(maxsize=8)
def _weights(device: torch.device) -> torch.Tensor:
    """An odd number for each place in a chunk: one element that differs always shows."""
    made = torch.arange(1, _CHUNK + 1, device=device) * _FIRST
    made = (made ^ (made >> 30)) * _SECOND
    made = (made ^ (made >> 27)) * _THIRD
    return made | 1


def _hash(tensor: torch.Tensor) -> torch.Tensor:
    """A sum of all elements' bits, each times the number of its place; integers wrap, so that the
    order of the additions does not matter and every device gives the same.
    """
    flat = tensor.detach().reshape(-1)
    if flat.dtype == torch.bool:
        flat = flat.to(torch.uint8)
    bits = flat.view(_WORDS[flat.element_size()]) if flat.numel() else flat.to(torch.uint8)
    weights = _weights(bits.device)
    total = torch.full((), tensor.numel(), dtype=torch.int64, device=bits.device) * _SECOND
    for number, chunk in enumerate(bits.split(_CHUNK)):
        part = (chunk.to(torch.int64) * weights[: chunk.numel()]).sum()
        total = total + (part ^ (part >> 31)) * (_THIRD + 2 * number)
    return total


def fingerprints(tensors: Sequence[torch.Tensor]) -> list[Fingerprint]:
    """One for each tensor; each device is waited for once."""
    made: dict[int, Fingerprint] = {}
    for device in {t.device for t in tensors}:
        places = [i for i, t in enumerate(tensors) if t.device == device]
        made.update(zip(places, _on_one_device([tensors[i] for i in places]), strict=True))
    return [made[i] for i in range(len(tensors))]


def _on_one_device(tensors: Sequence[torch.Tensor]) -> list[Fingerprint]:
    hashes = torch.stack([_hash(t) for t in tensors]).tolist()
    sizes = _sizes([t for t in tensors if _has_size(t)])
    left = iter(sizes)
    found = []
    for tensor, value in zip(tensors, hashes, strict=True):
        norm, largest = next(left) if _has_size(tensor) else (None, None)
        found.append(Fingerprint(f"{value & (1 << 64) - 1:016x}", norm, largest))
    return found


def _has_size(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.numel() > 0


def _sizes(tensors: Sequence[torch.Tensor]) -> list[tuple[float, float]]:
    """(2-norm, largest absolute value) of each."""
    if not tensors:
        return []
    norms = [torch.linalg.vector_norm(t.detach(), dtype=_wide(t)).double() for t in tensors]
    largest = [torch.linalg.vector_norm(t.detach(), torch.inf).double() for t in tensors]
    return list(zip(torch.stack(norms).tolist(), torch.stack(largest).tolist(), strict=True))


def _wide(tensor: torch.Tensor) -> torch.dtype:
    """What its squares are added up in."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32
