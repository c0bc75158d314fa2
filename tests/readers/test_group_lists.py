"""Shapes of meshes and members of groups, out of py-spy's output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hangdoctor.readers import group_lists, pyspy_frames, retry_loops

MESH = "/v/site-packages/torch/distributed/device_mesh.py"
C10D = "/v/site-packages/torch/distributed/distributed_c10d.py"
LOOP = ["def f(a):", "    for b in a:", "        if b:", "            g(b)", "    g(a)"]


@pytest.mark.parametrize(
    ("name", "file", "shown", "found"),
    [
        ("init_device_mesh", MESH, {"mesh_shape": "(3, 2)"}, {"mesh_shape": [3, 2]}),
        ("init_device_mesh", MESH, {"mesh_shape": "(8,)"}, {"mesh_shape": [8]}),
        ("init_device_mesh", MESH, {"mesh_shape": "(8)"}, {"mesh_shape": [8]}),
        ("init_device_mesh", MESH, {"mesh_shape": "(3, 2, ...)"}, {}),
        ("init_device_mesh", MESH, {"mesh_shape": f"({', '.join('1' * 9)})"}, {}),
        ("init_device_mesh", "/app/mesh.py", {"mesh_shape": "(3, 2)"}, {}),
        ("DeviceMesh.__init__", MESH, {"mesh": "[[0, 1, 2], [3, 4, 5]]"}, {"mesh_shape": [2, 3]}),
        ("DeviceMesh.__init__", MESH, {"mesh": "[[0, 1, 2], [3, ...]]"}, {}),
        ("DeviceMesh.__init__", MESH, {"mesh": "<Tensor at 0x7f>"}, {}),
        ("DeviceMesh.__init__", MESH, {"mesh": "None"}, {}),
        ("DeviceMesh._flatten", MESH, {"mesh_shape": "(3, 2)", "mesh": "[1]"}, {}),
        ("new_group", C10D, {"ranks": "[0, 2, 4]"}, {"ranks": [0, 2, 4]}),
        ("new_group", C10D, {"ranks": "None"}, {}),
        (
            "new_group",
            C10D,
            {"ranks": "[0, 2]", "use_local_synchronization": "True"},
            {"own ranks": [0, 2]},
        ),
        ("new_group", C10D, {"ranks": '["secret"]'}, {}),
        ("new_group", C10D, {"ranks": f"[{', '.join(map(str, range(65)))}]"}, {}),
        ("broadcast", C10D, {"ranks": "[0, 2]"}, {}),
        (
            "_new_group_with_tag",
            C10D,
            {"ranks": "[0, 2]", "group_name": '"4"'},
            {"ranks": [0, 2], "group number": [4]},
        ),
        ("_new_group_with_tag", C10D, {"group_name": '"a1f0_2"'}, {}),
        ("_new_group_with_tag", C10D, {"group_name": '"None"'}, {}),
        ("new_group", C10D, {"group_name": '"4"'}, {}),
        (
            "init_process_group",
            C10D,
            {"rank": "1", "world_size": "3"},
            {group_lists.SET_UP: [1, 3]},
        ),
        ("init_process_group", C10D, {"rank": "-1", "world_size": "-1"}, {}),
        ("barrier", C10D, {"rank": "1", "world_size": "3"}, {}),
    ],
)
def test_lists(name: str, file: str, shown: dict[str, str], found: dict[str, list[int]]) -> None:
    assert group_lists.lists(name, file, shown) == found


@pytest.mark.parametrize(
    ("number", "call", "repeated"),
    [
        (4, "g(b)", True),
        (5, "g(a)", False),
        (5, "x = [g(b) for b in a]", True),
        (5, "list(map(g, a))", True),
        (9, "g(a)", False),
    ],
)
def test_loops(number: int, call: str, repeated: bool) -> None:
    assert retry_loops.is_repeated(LOOP, number, call) is repeated


def test_a_loop_of_the_users_around_a_mesh_is_seen(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("for shape in shapes:\n    init_device_mesh('cpu', shape)\nmain()\n")
    inner = {"name": "init_device_mesh", "filename": MESH, "line": 9}
    local = {"name": "mesh_shape", "arg": True, "repr": "(3, 2)"}
    frames = [
        inner | {"locals": [local]},
        {"name": "make", "filename": str(program), "line": 2},
        {"name": "<module>", "filename": str(program), "line": 3},
    ]
    thread = {"thread_id": 1, "thread_name": "MainThread", "frames": frames}
    [found] = pyspy_frames.parse_json(json.dumps([thread]).encode())
    assert found.frames[0].lists == {"mesh_shape": [3, 2]}
    assert [frame.loops for frame in found.frames] == [False, True, False]
