"""Calls of mpi4py in a black box, by a real MPI: number, root, peer, tag, communicator, call site."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import mpi
from tests.support.framework_jobs import mpi_libraries
from tests.support.probe_ranks import SCRIPTS, environment

MPI4PY = Path(sys.prefix) / "mpi"
WORLD = [0, 1, 2]
Told = dict[str, Any]
FIELDS = "op seq root peer detail asynchronous state shapes reduce_op site group".split()


@pytest.fixture(scope="module", params=["in C", "in Python", "started by itself"])
def told(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[list[Any], list[Told]]]:
    """What each of three ranks found in its own box."""
    if "hydra" not in mpi.kinds():
        pytest.skip("no MPICH (scripts/setup-slurm installs it)")
    if not (MPI4PY / "mpi4py").is_dir():
        pytest.skip("no mpi4py (scripts/setup-slurm installs it)")
    folder = tmp_path_factory.mktemp("mpi")
    (folder / "boxes").mkdir(mode=0o700)
    env = environment(folder / "boxes", LD_LIBRARY_PATH=mpi_libraries(folder))
    env |= {"PYTHONPATH": f"{env['PYTHONPATH']}{os.pathsep}{MPI4PY}"}
    env |= {"HANGDOCTOR_RECORD_PURE": "1"} if request.param == "in Python" else {}
    words = [*mpi.kinds()["hydra"], "-n", "3", sys.executable, str(SCRIPTS / "mpi_calls.py")]
    words += ["itself"] if request.param == "started by itself" else []
    ended = subprocess.run(words, env=env, text=True, capture_output=True, timeout=100)
    assert ended.returncode == 0, ended.stderr
    assert not list((folder / "boxes").glob("*.blackbox"))  # all ended well
    ranks = sorted((json.loads(line) for line in ended.stdout.splitlines()), key=lambda r: r[0][2])
    return [(head, [dict(zip(FIELDS, o, strict=True)) for o in ops]) for head, ops in ranks]


def of(ops: list[Told], site: str, *fields: str) -> list[tuple[Any, ...]]:
    return [tuple(o[f] for f in fields) for o in ops if o["site"] == site]


def test_collectives(told: list[tuple[list[Any], list[Told]]]) -> None:
    for head, ops in told:
        assert head[:2] == ["mpi4py", False] and head[3] == ""
        found = of(ops, "collectives", "op", "seq", "root", "shapes", "reduce_op", "group")
        assert found == [
            ("all_reduce", 1, -1, "[4]", "max", WORLD),
            ("reduce", 2, 1, "[4]", "sum", WORLD),
            ("broadcast", 3, 2, "", "", WORLD),
            ("all_gather", 4, -1, "", "", WORLD),
            ("broadcast", 5, 0, "[4]", "", WORLD),
            ("barrier", 6, -1, "", "", WORLD),
        ]
        assert {o["state"] for o in ops} == {"done"}


def test_the_parts_of_an_all_to_all(told: list[tuple[list[Any], list[Told]]]) -> None:
    """By place in the communicator, where that is in the order of ranks: a reader knows no other."""
    for rank, (_, ops) in enumerate(told):
        mine = ",".join([str(rank + 1)] * 3)
        found = of(ops, "vectors", "op", "detail")
        assert found[0] == ("all_to_all", f"sends 1,2,3; receives {mine}")
        assert ("all_to_all", "") in found[1:]


def test_transfers(told: list[tuple[list[Any], list[Told]]]) -> None:
    fields = "op", "peer", "seq", "detail", "asynchronous"
    assert of(told[1][1], "transfers", *fields) == [
        ("recv", 0, 1, "tag 5", True),
        ("send", 2, 1, "tag 5", True),
        ("recv", 0, 2, "tag 3", True),
        ("send", 2, 2, "tag 3", True),
        ("recv", 0, 3, "tag 4", True),
        ("send", 2, 3, "tag 4", True),
        ("send", 0, 1, "tag 0", False),
    ]
    received = of(told[0][1], "transfers", "op", "peer", "asynchronous")[-2:]
    assert sorted(received) == [("recv", 1, False), ("recv", 2, False)]  # from anyone
    assert of(told[1][1], "polls", *fields) == [("recv", 2, 1, "tag 9", False)]


def test_communicators_are_groups_of_ranks_of_the_world(
    told: list[tuple[list[Any], list[Told]]],
) -> None:
    for rank in (0, 1):
        found = of(told[rank][1], "communicators", "op", "root", "peer", "group")
        assert found[0] == ("Comm_split", -1, -1, WORLD)
        assert ("broadcast", 1, -1, [0, 1]) in found  # rank 0 of a communicator in the other order
        assert found[-2][2:] == ((rank - 1) % 3, WORLD)
