"""The ranks of processes that only the arguments of their functions number."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.model.capture import Frame, NodeCapture, ProcessSample, RankCapture, ThreadSample
from hangdoctor.readers import reaped, spawned_as, start_arguments
from hangdoctor.readers.group_lists import SET_UP
from tests.support.stage import free_port, hangdoctor, wait_until

JOB = Path(__file__).parents[1] / "support" / "jobs" / "spawned_store.py"
TORCH = "/v/torch/multiprocessing/spawn.py"
PYTHON = "/usr/lib/python3.11/multiprocessing/process.py"
BY_ORDER = spawned_as.BY_ORDER + "in the order in which process 7 started them"
Marked = dict[str, list[int]]


def marked(
    own: dict[str, str], spawn: dict[str, str] | None = None, starter: str = PYTHON
) -> list[Marked]:
    """The lists of the frames of a process with these variables, innermost frame first."""
    stack = [(Frame("get", "/app/a.py", 5), {"rank": "9", "world": "10"})]
    stack += [(Frame("worker", "/app/a.py", 20), own)]
    stack += [(Frame("_wrap", TORCH, 87), spawn)] if spawn is not None else []
    stack += [(Frame("BaseProcess.run", starter, 108), {"self": "<SpawnProcess>"})]
    start_arguments.mark([frame for frame, _ in stack], [variables for _, variables in stack])
    return [frame.lists for frame, _ in stack]


def test_the_function_that_was_started_and_torch_say_it() -> None:
    lists = marked({"rank": "2", "world_size": "4"}, {"i": "2"})
    assert lists == [{}, {start_arguments.ARGUMENTS: [2, 4]}, {start_arguments.GIVEN: [2]}, {}]


@pytest.mark.parametrize(
    ("own", "told"),
    [
        ({"rank": "2", "world": "4"}, [2, 4]),
        ({"rank": "2"}, [2]),
        ({"rank": "2", "world": "2"}, [2]),
        ({"rank": "two"}, None),
        ({"index": "2"}, None),
        ({"rank": "-1", "world": "4"}, None),
    ],
)
def test_a_rank_among_the_arguments(own: dict[str, str], told: list[int] | None) -> None:
    assert marked(own)[1].get(start_arguments.ARGUMENTS) == told


def test_other_programs_say_nothing_by_a_variable_of_that_name() -> None:
    assert marked({"rank": "2", "world": "4"}, starter="/usr/lib/python3.11/threading.py") == [
        {},
        {},
        {},
    ]


def job(
    *told: Marked, notes: list[str] | None = None, node_size: int = 0, first: int = 0
) -> NodeCapture:
    """Ranks that so far only the order of their start numbers, on the one node of the job."""
    size = len(told)
    ranks = []
    for place, lists in enumerate(told):
        threads = [ThreadSample(7, "MainThread", frames=[Frame("worker", "/app/a.py", 20)])]
        threads[0].frames[0].lists = lists
        ranks.append(
            RankCapture(
                pid=2**30 + place,
                rank=first + place,
                node="n1",
                world_size=first + size,
                local_rank=place,
                local_world_size=node_size or size,
                samples=[ProcessSample(at_s=1.0, threads=threads)],
            )
        )
    return NodeCapture("n1", "parent:7", ranks, notes=[BY_ORDER] if notes is None else notes)


def given(number: int) -> Marked:
    return {start_arguments.GIVEN: [number]}


def own(*numbers: int, torch: int = -1) -> Marked:
    return {start_arguments.ARGUMENTS: [*numbers]} | (given(torch) if torch >= 0 else {})


def numbers(capture: NodeCapture) -> dict[int, bool]:
    """{rank: whether it has ended}."""
    return {rank.rank: rank.gone for rank in capture.ranks}


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ([given(0), given(1)], {0: False, 1: False}),
        ([given(0), given(2)], {0: False, 1: True, 2: False}),
        ([given(1), given(2)], {0: True, 1: False, 2: False}),
        ([given(1), given(0)], {0: False, 1: False}),
        ([own(0, 3), own(2, 3)], {0: False, 1: True, 2: False}),
        ([own(5, 8, torch=1), own(6, 8, torch=2)], {4: True, 5: False, 6: False}),
        ([own(16, torch=0), own(16, torch=2)], {0: False, 1: True, 2: False}),
    ],
    ids=[
        "all are there",
        "one between them",
        "torch's first one",
        "started in another order",
        "by the arguments alone",
        "the second node",
        "the rank of a matrix",
    ],
)
def test_a_number_that_none_has_is_of_one_that_ended(
    told: list[Marked], found: dict[int, bool]
) -> None:
    capture = job(*told)
    spawned_as.take(capture)
    assert numbers(capture) == found
    assert capture.notes[0] == f"{spawned_as.BY_ORDER}by the arguments with which they were started"


@pytest.mark.parametrize(
    ("told", "notes"),
    [
        ([given(0), given(2)], []),
        ([given(0), {}], None),
        ([given(1), given(1)], None),
        ([own(0, 3), own(2, 4)], None),
        ([own(0), own(2**20)], None),
        ([], None),
    ],
    ids=[
        "they have ranks",
        "one says nothing",
        "one number twice",
        "two sizes",
        "no ranks of one host",
        "no process",
    ],
)
def test_else_the_order_stays(told: list[Marked], notes: list[str] | None) -> None:
    capture = job(*told, notes=notes)
    before = numbers(capture)
    spawned_as.take(capture)
    assert numbers(capture) == before
    assert capture.notes == ([BY_ORDER] if notes is None else notes)


def test_of_several_nodes_torchs_numbers_say_nothing() -> None:
    capture = job(given(0), given(2), first=2)
    spawned_as.take(capture)
    assert numbers(capture) == {2: False, 3: False}


def test_who_ended_ended_well_where_torch_would_have_ended_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catching = job(given(0), given(2))
    monkeypatch.setattr(reaped, "ended_well", lambda _: False)
    spawned_as.take(catching)
    assert [rank.exit_code for rank in catching.ranks] == [None, None, None]
    monkeypatch.setattr(reaped, "ended_well", lambda _: True)
    capture = job(given(0), given(2))
    spawned_as.take(capture)
    assert [rank.exit_code for rank in capture.ranks] == [None, 0, None]
    assert capture.notes[1].startswith("rank 1 ended with exit code 0")
    alone = job(own(0, 3), own(2, 3))
    spawned_as.take(alone)
    assert [rank.exit_code for rank in alone.ranks] == [None, None, None]
    starting = job(given(0), given(2) | {SET_UP: [2, 3]})
    spawned_as.take(starting)
    assert [rank.exit_code for rank in starting.ranks] == [None, None, None]


Begin = Callable[[int], str]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Start the job, of which this rank returns: what the job is called."""
    started: list[subprocess.Popen[bytes]] = []

    def start(leaves: int) -> str:
        words = [sys.executable, str(JOB), str(tmp_path), str(free_port()), str(leaves)]
        environ = os.environ | {"OMP_NUM_THREADS": "1"}
        started.append(subprocess.Popen(words, env=environ, start_new_session=True))
        return f"parent:{started[-1].pid}"

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=20)


@pytest.mark.torch
@pytest.mark.timeout(280)
@pytest.mark.parametrize("leaves", [1, 3])
def test_a_rank_that_returned_is_missed_by_its_number(
    begin: Begin, tmp_path: Path, leaves: int
) -> None:
    """Also the last one: the arguments hold the world size, and the store is on a loopback address."""
    name = begin(leaves)
    wait_until(lambda: all((tmp_path / f"at.{n}").exists() for n in range(4)), "all ranks", 200)
    found: dict[str, Any] = {}

    def is_gone() -> bool:
        words = ("dump", "--local", "--job", name, "--json", "-", "--no-bundle")
        done = hangdoctor(*words, cwd=tmp_path, code=None)
        found.clear()
        found.update(json.loads(done.stdout) if done.stdout.startswith("{") else {})
        states = {line["rank"]: line["state"] for line in found.get("ranks", [])}
        return states.get(leaves) == "gone" and len(found.get("causes", [])) == 1

    wait_until(is_gone, "the rank that returned has ended", 200)
    assert found["job"]["world_size"] == 4
    assert [(c["kind"], c["ranks"]) for c in found["causes"]] == [("dead", [leaves])]
    assert f"Rank {leaves} " in found["summary"] and "exit code 0" in found["summary"]
