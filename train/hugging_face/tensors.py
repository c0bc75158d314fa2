"""The files of a Hugging Face model: config.json, and tensors in safetensors or torch's files.

safetensors: u64 length of a JSON header, the header ({name: dtype, shape, begin and end of its
bytes}), the bytes. Nothing in it is code.
"""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import torch

from ..options import ConfigError

_TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_NAMES = {kind: name for name, kind in _TYPES.items()}
_LONGEST_HEADER = 100 << 20

Tensors = dict[str, torch.Tensor]


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a model's folder.

    Raises:
        ConfigError: none there, or not readable.
    """
    try:
        made: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder}: no readable config.json ({error})") from error
    return made


def read_tensors(folder: Path) -> Tensors:
    """All tensors of a model's folder; those of safetensors files stay on disk until they are used.

    Raises:
        ConfigError: none there, or a file is damaged.
    """
    found: Tensors = {}
    files = sorted(folder.glob("*.safetensors"))
    for path in files:
        found |= read_safetensors(path)
    if not files:
        for path in sorted(folder.glob("pytorch_model*.bin")):
            found |= torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    if not found:
        raise ConfigError(f"{folder}: no *.safetensors and no pytorch_model*.bin")
    return found


def read_safetensors(path: Path) -> Tensors:
    """The tensors of one file, mapped.

    Raises:
        ConfigError: cut short, of a kind unknown here, or no such file.
    """
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if not 2 <= length <= min(_LONGEST_HEADER, size - 8):
                raise ValueError(f"a header of {length} bytes")
            header = json.loads(file.read(length))
        data = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)[8 + length :]
        return {
            name: _tensor(data, entry) for name, entry in header.items() if name != "__metadata__"
        }
    except (ValueError, KeyError, TypeError, AttributeError, struct.error, RuntimeError) as error:
        raise ConfigError(f"{path} is damaged, or no safetensors file ({error})") from error


def _tensor(data: torch.Tensor, entry: dict[str, Any]) -> torch.Tensor:
    kind, shape, (begin, end) = _TYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
    if not 0 <= begin <= end <= len(data) or end - begin != math.prod(shape) * kind.itemsize:
        raise ValueError(f"bytes {begin} to {end} for {shape}")
    raw = data[begin:end]
    if raw.storage_offset() % kind.itemsize:  # a file may put it at any byte: a copy is aligned
        raw = raw.clone()
    return raw.view(kind).view(shape)


def write_safetensors(path: Path, tensors: Tensors) -> None:
    """Write one file, whole or not at all."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for name, tensor in tensors.items():
        end = begin + tensor.numel() * tensor.element_size()
        entry = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape)}
        header[name] = {**entry, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(
                tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
            )
    part.replace(path)
