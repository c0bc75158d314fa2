"""Weights at the start: every value is a function of (seed, name, number of the element), so that a
rank draws its own slice alone and every layout starts from the same model.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import torch

# Values drawn together. Always the same ones: a library may round the last few of an array in
# another way, and then a value would depend on where a slice begins.
_BLOCK = 1 << 16
_WORDS_A_COUNT = 4  # 64-bit words for each number that Philox counts; two values of each word


def normal(seed: int, name: str, rows: range, width: int, std: float) -> torch.Tensor:
    """float32 [rows, width]: these rows of the weight `name`, normal(0, std).

    Element (row, column) of the whole is number row x width + column.
    """
    made = np.empty(len(rows) * width, dtype=np.float32)
    key = np.frombuffer(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:16], dtype="<u8")
    first, end = rows.start * width, rows.stop * width
    for block in range(first // _BLOCK, -(-end // _BLOCK)):
        begin = block * _BLOCK
        low, high = max(first, begin), min(end, begin + _BLOCK)
        made[low - first : high - first] = _block(key, block)[low - begin : high - begin]
    made *= np.float32(std)
    return torch.from_numpy(made.reshape(len(rows), width))


def _block(key: np.ndarray, number: int) -> np.ndarray:
    """`_BLOCK` values of the standard normal distribution (Box and Muller 1958)."""
    count = number * (_BLOCK // 2 // _WORDS_A_COUNT)
    bits = np.random.Philox(key=key, counter=count).random_raw(_BLOCK // 2).astype("<u8")
    uniform = bits.view("<u4").astype(np.float32)
    radius, angle = uniform[: _BLOCK // 2], uniform[_BLOCK // 2 :]
    radius += np.float32(0.5)  # never 0, whose logarithm is not finite
    radius *= np.float32(2.0**-32)
    radius = np.sqrt(np.float32(-2.0) * np.log(radius))
    angle *= np.float32(math.tau * 2.0**-32)
    return np.concatenate((radius * np.cos(angle), radius * np.sin(angle)))
