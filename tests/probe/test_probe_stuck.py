"""Black boxes of ranks that hang, are stopped, are killed, or crash."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.model.layout import Layout
from hangdoctor.model.operations import group_uid
from hangdoctor.probe.flight import socket_path
from hangdoctor.readers.blackbox import Contents, find_boxes, moved, read_box
from hangdoctor.readers.box_position import BoxWatch
from hangdoctor.train.faults import outside
from tests.support.probe_ranks import Rank, environment, ranks, until
from tests.support.stage import hangdoctor, switches

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]


def box_of(folder: Path, rank: Rank) -> Contents:
    (found,) = find_boxes(folder, pids=[rank.pid])
    return read_box(found.path)


def test_a_hang_seen_from_outside_and_after_sigkill(tmp_path: Path) -> None:
    with ranks("stuck.py", 3, environment(tmp_path), "hang") as started:
        assert [rank.line() for rank in started] == ["waiting", "stuck", "entering"]
        until(
            "rank 2 is in its collective",
            lambda: box_of(tmp_path, started[2]).threads[0].operation is not None,
        )
        until(
            "rank 0 waits for its handle",
            lambda: box_of(tmp_path, started[0]).threads[0].waits_for_handle,
        )
        by_rank = [box_of(tmp_path, rank) for rank in started]
        _check_frontiers(by_rank)

        assert _ask_worker_server(socket_path(tmp_path, started[0].pid)) == "HTTP/1.1 200 OK"
        again = [box_of(tmp_path, rank) for rank in started]
        assert not any(moved(a, b) for a, b in zip(by_rank, again, strict=True))

        with outside.stopped(started[1].pid):
            stopped = box_of(tmp_path, started[1])
        assert stopped.box.status == "live" and stopped.ops.operations == by_rank[1].ops.operations

        started[2].process.kill()
        started[2].process.wait()
        dead = box_of(tmp_path, started[2])
        assert dead.box.status == "dead"
        assert dead.threads[0].operation == by_rank[2].threads[0].operation
        assert {b.rank: b.status for b in find_boxes(tmp_path)} == {0: "live", 1: "live", 2: "dead"}
        assert [b.rank for b in find_boxes(tmp_path, live_only=True)] == [0, 1]


def test_a_job_whose_collectives_are_not_seen_shows_its_progress_by_its_optimizer(
    tmp_path: Path,
) -> None:
    with ranks("ddp.py", 2, environment(tmp_path), "stuck") as started:
        assert [rank.line() for rank in started] == ["trained", "trained"]
        watches = [BoxWatch(find_boxes(tmp_path, pids=[rank.pid])[0].path) for rank in started]
        seen = [watch.read() for watch in watches]
        assert [s.iteration for s in seen] == [5, 5]
        assert all(
            s.op == "new_group" and s.event_s > box_of(tmp_path, r).box.created_s
            for s, r in zip(seen, started, strict=True)
        )
        assert [box_of(tmp_path, rank).ops.iteration for rank in started] == [5, 5]
        until("rank 0 waits in backward", lambda: "State:\tS" in switches(started[0].pid))
        verdict = dump(tmp_path, started)
        assert verdict["status"] == "hang" and verdict["causes"][0]["ranks"] == [1], verdict[
            "summary"
        ]
        for watch in watches:
            watch.close()


@pytest.mark.parametrize(
    ("how", "disabled"),
    [
        ("uneven", "1"),
        ("left", "0"),
        pytest.param("uneven", "0", marks=pytest.mark.full),
        pytest.param("left", "1", marks=pytest.mark.full),
    ],
)
def test_ranks_that_reduce_gradients_are_not_blamed_for_staying_away(
    tmp_path: Path, how: str, disabled: str
) -> None:
    """No black box shows that reduction. torch's own record has it, beside a box where another rank is in
    a call that the box has: then the rank that differs is named by count.
    """
    with ranks("ddp.py", 3, environment(tmp_path, HANGDOCTOR_DISABLE=disabled), how) as started:
        assert [rank.line() for rank in started] == ["trained"] * 3
        for rank in started:
            at_rest(rank)
        verdict = dump(tmp_path, started)
        [cause] = verdict["causes"]
        assert cause["ranks"] == [1], verdict["summary"]
        assert cause["confidence"] >= 0.7, cause
        if how == "left" and disabled == "0":
            assert cause["kind"] == "mismatch"
            assert (
                "barrier #11 (ddp.py:40), which no rank had called before, where the others entered"
                in (cause["summary"])
            )


def at_rest(rank: Rank) -> None:
    """Until its main thread has not run for half a second."""
    last = ["", time.monotonic()]

    def rests() -> bool:
        now = switches(rank.pid)
        if now != last[0]:
            last[:] = [now, time.monotonic()]
        return time.monotonic() - float(last[1]) > 0.5

    until("a rank at rest", rests)


def dump(folder: Path, started: list[Rank]) -> dict[str, Any]:
    pids = [word for rank in started for word in ("--pid", str(rank.pid))]
    return dict(
        json.loads(hangdoctor("dump", *pids, "--json", "-", "--no-bundle", cwd=folder).stdout)
    )


def _ask_worker_server(path: Path) -> str:
    """Torch's own server answers although the rank's main thread waits."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(20)
        s.connect(str(path))
        s.sendall(b"POST /handler/ping HTTP/1.0\r\nContent-Length: 0\r\n\r\n")
        return s.recv(4096).decode().splitlines()[0]


def _check_frontiers(by_rank: list[Contents]) -> None:
    awaited, entered = by_rank[0].threads[0].operation, by_rank[2].threads[0].operation
    assert awaited is not None and entered is not None
    assert (awaited.op, awaited.state, awaited.asynchronous) == ("all_reduce", "started", True)
    assert (entered.op, entered.state, entered.left_s) == ("all_reduce", "entered", 0.0)
    assert awaited.seq == entered.seq == 6 and awaited.signature() == entered.signature()
    assert entered.group == group_uid(range(3)) and entered.iteration == 4
    assert entered.shapes == "[3, 2]" and entered.reduce_op == "max" and "stuck.py:" in entered.site
    assert by_rank[1].threads[0].operation is None, "rank 1 is in no operation"
    assert max(o.seq for o in by_rank[1].ops.operations if o.op == "all_reduce") == 5
    for box in by_rank:
        assert (box.ops.iteration, box.box.micro_batch, box.ops.phase) == (4, 8, "forward")
        assert box.box.layout == "dp=3 pp=1 tp=1" and not box.ops.finished
        assert box.ops.layout == Layout(dp=3, pp=1, tp=1)


def test_a_crash_leaves_the_box_with_its_reason(tmp_path: Path) -> None:
    with ranks("stuck.py", 3, environment(tmp_path), "raise") as started:
        code, _, err = started[0].end()
        # -6: the exception told, gloo's threads abort one in five of such exits, without the probe
        # as well.
        assert code in (1, -6) and "RuntimeError: the loss is not a number" in err
        crashed = box_of(tmp_path, started[0])
        assert (crashed.box.status, crashed.box.state) == ("dead", "crashed")
        assert crashed.ops.notes == ["ended by RuntimeError: the loss is not a number"]
        for rank in started:
            rank.process.kill()
            rank.process.wait()
    # Nothing runs any more: the command says where the boxes of that job lie.
    dump = ["dump", "--local", "--job", crashed.box.job, "--no-bundle"]
    done = hangdoctor(
        *dump, cwd=tmp_path, code=1, env=os.environ | {"HANGDOCTOR_DIR": str(tmp_path)}
    )
    assert f"hangdoctor diagnose {tmp_path}" in done.stderr, done.stderr
