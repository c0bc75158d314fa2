"""Lists of whole numbers in torch's own frames that make process groups: the shape of a device mesh,
the members and the number of a new group. They show which ranks ask for other groups than the rest. In the set-up they are the
rank and the world size that the process was given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..stacks.user_code import C10D
from ..text.late import late
from ..text.ranges import number_in

_LIST = late(r"[\[(](\d{1,9}(?:, \d{1,9})*),?[\])]")
_MOST_AXES = 8
_MOST_RANKS = 64
_LONGEST = 2000  # characters of a mesh that is given as nested lists
_MESH_FILE = "torch/distributed/device_mesh.py"
_MAKE_GROUPS = ("new_group", "_new_group_with_tag")
NUMBER = "group number"
_COUNTS = "_new_group_with_tag"
SET_UP = "rank and world size"
# Functions of the set-up, whose variables have both once they are known
_SETS_UP = (
    "init_process_group",
    "_create_c10d_store",
    "_env_rendezvous_handler",
    "_tcp_rendezvous_handler",
    "_file_rendezvous_handler",
)


def lists(name: str, file: str, shown: Mapping[str, str]) -> dict[str, list[int]]:
    """``mesh_shape`` or ``ranks`` of a frame, by its variables as py-spy shows them; {} of all other
    frames, and of what is too long to be shown whole.
    """
    if file.endswith(_MESH_FILE):
        return _named("mesh_shape", _mesh_shape(name, shown), _MOST_AXES)
    if file.endswith(C10D) and name in _MAKE_GROUPS:
        if shown.get("use_local_synchronization") == "True":
            # Each rank calls it for its own groups only.
            return _named("own ranks", _numbers(shown.get("ranks", "")), _MOST_RANKS)
        members = _named("ranks", _numbers(shown.get("ranks", "")), _MOST_RANKS)
        return members | _number_of_group(name, shown)
    if name in _SETS_UP:
        told = [number_in(shown.get(of, "")) for of in ("rank", "world_size")]
        return {SET_UP: told} if 0 <= told[0] < told[1] else {}
    return {}


def _number_of_group(name: str, shown: Mapping[str, str]) -> dict[str, list[int]]:
    """torch names a group that all ranks make by how many were made before it in the process."""
    quoted = shown.get("group_name", "") if name == _COUNTS else ""
    number = number_in(quoted[1:-1])
    return {NUMBER: [number]} if number >= 0 else {}


def _named(name: str, numbers: list[int], most: int) -> dict[str, list[int]]:
    return {name: numbers} if 0 < len(numbers) <= most else {}


def _mesh_shape(name: str, shown: Mapping[str, str]) -> list[int]:
    if name == "init_device_mesh":
        return _numbers(shown.get("mesh_shape", ""))
    if name.rpartition(".")[2] == "__init__":
        return _shape_of(shown.get("mesh", ""))
    return []


def _numbers(text: str) -> list[int]:
    match = _LIST.fullmatch(text)
    return [int(number) for number in match[1].split(", ")] if match is not None else []


def _shape_of(text: str) -> list[int]:
    """``[[0, 1, 2], [3, 4, 5]]`` -> ``[2, 3]``."""
    if not text.startswith("[") or len(text) > _LONGEST:
        return []
    try:
        inner: Any = json.loads(text)
    except (ValueError, RecursionError):
        return []
    shape: list[int] = []
    while isinstance(inner, list) and inner and len(shape) <= _MOST_AXES:
        shape.append(len(inner))
        inner = inner[0]
    return shape
