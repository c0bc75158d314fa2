"""Megatron's indexed data set: PREFIX.bin holds the tokens, PREFIX.idx where each document is.

Layout of .idx (Megatron-LM, megatron/core/datasets/indexed_dataset.py), little-endian: magic
``MMIDIDX\\0\\0``, u64 version 1, u8 dtype code, u64 sequences n, u64 documents d + 1, i32
lengths[n], i64 byte offsets[n], i64 first sequence of each document[d + 1]. Newer files may add i8
modes[n].
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..options import ConfigError

MAGIC = b"MMIDIDX\x00\x00"
DTYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}
_CODES = {np.dtype(kind): code for code, kind in DTYPES.items()}
_HEADER = struct.Struct("<9sQBQQ")


def smallest_dtype(vocab_size: int) -> type:
    """uint16 where every token fits, else int32: Megatron's own choice."""
    return np.uint16 if vocab_size < 65500 else np.int32


class IndexedDataset:
    """Read-only, memory-mapped: `dataset[i]` is sequence i as an array of tokens.

    Raises:
        ConfigError: a file is missing, is not of this format, or the two do not belong together.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        idx, binary = Path(f"{prefix}.idx"), Path(f"{prefix}.bin")
        for path in (idx, binary):
            if not path.is_file():
                raise ConfigError(
                    f"no file {path}: make it with python -m hangdoctor.train.data.prepare --output {prefix} ..."
                )
        with idx.open("rb") as file:
            head = file.read(_HEADER.size)
        if len(head) < _HEADER.size or head[:9] != MAGIC:
            raise ConfigError(
                f"{idx} is not an index of Megatron's mmap format (it starts with {head[:9]!r})"
            )
        _, version, code, sequences, documents = _HEADER.unpack(head)
        if version != 1 or code not in DTYPES:
            raise ConfigError(
                f"{idx}: version {version}, dtype code {code}; known are version 1 and codes {sorted(DTYPES)}"
            )
        self.dtype = np.dtype(DTYPES[code])
        self._read(idx, binary, sequences, documents)

    def _read(self, idx: Path, binary: Path, sequences: int, documents: int) -> None:
        needed = _HEADER.size + 12 * sequences + 8 * documents
        if idx.stat().st_size < needed:
            raise ConfigError(
                f"{idx} is cut short: {idx.stat().st_size} bytes, its header promises {needed}"
            )
        raw = np.memmap(idx, mode="r", dtype=np.uint8)
        at = _HEADER.size
        self.lengths = raw[at : at + 4 * sequences].view("<i4")
        at += 4 * sequences
        self.offsets = raw[at : at + 8 * sequences].view("<i8")
        at += 8 * sequences
        self.documents = raw[at : at + 8 * documents].view("<i8")
        end = (
            int(self.offsets[-1]) + int(self.lengths[-1]) * self.dtype.itemsize if sequences else 0
        )
        if binary.stat().st_size < end:
            raise ConfigError(
                f"{binary} is cut short: {binary.stat().st_size} bytes, {idx} needs {end}"
            )
        self.tokens = (
            np.memmap(binary, mode="r", dtype=self.dtype) if end else np.empty(0, self.dtype)
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: int) -> np.ndarray:
        start = int(self.offsets[i]) // self.dtype.itemsize
        return self.tokens[start : start + int(self.lengths[i])]


class IndexedWriter:
    """Writes the pair of files; nothing stands under the final names before `close`."""

    def __init__(self, prefix: str, dtype: type) -> None:
        self.prefix, self.dtype = prefix, np.dtype(dtype)
        Path(prefix).parent.mkdir(parents=True, exist_ok=True)
        self._part = Path(f"{prefix}.{os.getpid()}.part")
        self._binary = self._part.open("wb")
        self._lengths: list[int] = []
        self._documents = [0]

    def add(self, tokens: np.ndarray | list[int]) -> None:
        """One document of one sequence."""
        array = np.asarray(tokens, dtype=self.dtype)
        self._binary.write(array.tobytes())
        self._lengths.append(len(array))
        self._documents.append(len(self._lengths))

    def close(self) -> None:
        """Write the index beside the tokens, in Megatron's format, and close both."""
        self._binary.close()
        lengths = np.asarray(self._lengths, dtype="<i4")
        offsets = np.zeros(len(lengths), dtype="<i8")
        np.cumsum(lengths[:-1].astype("<i8") * self.dtype.itemsize, out=offsets[1:])
        index = Path(f"{self._part}.idx")
        with index.open("wb") as file:
            file.write(
                _HEADER.pack(MAGIC, 1, _CODES[self.dtype], len(lengths), len(self._documents))
            )
            for array in (lengths, offsets, np.asarray(self._documents, dtype="<i8")):
                file.write(array.tobytes())
        self._part.replace(f"{self.prefix}.bin")
        index.replace(f"{self.prefix}.idx")


def write_documents(
    prefix: str, documents: Iterable[np.ndarray | list[int]], vocab_size: int
) -> None:
    """Write token lists as one data set in the smallest dtype that holds the vocabulary."""
    writer = IndexedWriter(prefix, smallest_dtype(vocab_size))
    for tokens in documents:
        writer.add(tokens)
    writer.close()
