"""torch's recorder under NCCL's blocking wait, as an H200 showed it: nothing is ever marked as completed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hangdoctor.readers import blocking_wait
from hangdoctor.readers.flight_recorder_entry import Entry
from hangdoctor.readers.flight_recorder_format import Dump


def dump(*states: str, backend: str = "nccl") -> Dump:
    entries = [
        Entry(group="0", seq=n + 1, op="all_reduce", state=state, entered_ns=10 * n + 1)  # type: ignore[arg-type]
        for n, state in enumerate(states)
    ]
    return Dump("2.10", entries, members={}, names={}, backend=backend)


def test_all_but_the_last_one_are_done() -> None:
    found = dump("entered", "entered", "entered")
    blocking_wait.settle(found)
    assert [(e.state, e.left_ns) for e in found.entries] == [
        ("done", 11),
        ("done", 21),
        ("entered", 0),
    ]


@pytest.mark.parametrize(
    "found",
    [dump("done", "entered", "entered"), dump("entered", "entered", backend="gloo"), dump()],
)
def test_what_says_of_itself_what_is_done_stays(found: Dump) -> None:
    before = [(e.state, e.left_ns) for e in found.entries]
    blocking_wait.settle(found)
    assert [(e.state, e.left_ns) for e in found.entries] == before


@pytest.mark.parametrize(
    ("set_to", "on"),
    [
        ({"TORCH_NCCL_BLOCKING_WAIT": "1"}, True),
        ({"NCCL_BLOCKING_WAIT": "TRUE"}, True),
        ({"TORCH_NCCL_BLOCKING_WAIT": "0"}, False),
        ({}, False),
    ],
)
def test_the_environment_of_the_process_says_whether_it_is_on(
    set_to: dict[str, str], on: bool
) -> None:
    clean = {n: v for n, v in os.environ.items() if not n.endswith("NCCL_BLOCKING_WAIT")}
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=clean | set_to,
    ) as process:
        assert process.stdout is not None and process.stdout.readline()
        assert blocking_wait.is_on(process.pid) is on
        process.communicate(b"\n", timeout=20)
    assert not blocking_wait.is_on(process.pid)
