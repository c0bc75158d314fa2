"""Switching call traces: from the job's folder through collector and agent to the file beside the
black boxes.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from hangdoctor.agents.node_agent import pass_trace_on
from hangdoctor.collector.core import Core, Settings
from hangdoctor.collector.instructions import Position, Send
from hangdoctor.collector.operator_requests import TRACE_FILE, TraceRequests, put_trace
from hangdoctor.errors import BadInput, CollectorError, WireError
from hangdoctor.probe.calls.request import Request
from hangdoctor.transport import address
from hangdoctor.transport import messages as msg
from hangdoctor.watch.stall_watch import Settings as Bounds
from hangdoctor.watch.stall_watch import StallWatch
from tests.support.sidecar_stage import Job
from tests.support.stage import wait_until

WANTED = Request(
    serial=3,
    on=True,
    follow=("train", "deepspeed"),
    ignore=("torch.nn",),
    from_iteration=10,
    ranks="0-7",
    size_mb=32.0,
)


def test_a_request_reaches_the_ranks_through_collector_and_agent_also_those_that_come_later(
    job: Job,
) -> None:
    rank = job.rank_with_box(0, "trace-test")
    job.collector()
    put_trace(job.folder, WANTED)
    wait_until(
        lambda: job.said("collector", "traces are switched on") == 1, "the collector has seen it"
    )
    job.agent("na", "trace-test")  # said hello after the request
    [box] = (job.logs / "boxes").rglob("*.blackbox")
    told = box.parent / "hangdoctor-trace.json"
    wait_until(told.exists, "the request lies beside the box")
    assert json.loads(told.read_text()) == {
        "serial": 3,
        "on": True,
        "follow": ["train", "deepspeed"],
        "ignore": ["torch.nn"],
        "from_iteration": 10,
        "ranks": "0-7",
        "size_mb": 32.0,
    }
    assert told.stat().st_mode & 0o777 == 0o600
    put_trace(job.folder, Request(4, False))
    wait_until(lambda: json.loads(told.read_text())["serial"] == 4, "the second one, too")
    assert json.loads(told.read_text()) == {
        "serial": 4,
        "on": False,
        "follow": [],
        "ignore": [],
        "from_iteration": None,
        "ranks": None,
        "size_mb": None,
    }
    (job.folder / TRACE_FILE).write_text("{}")
    wait_until(
        lambda: job.said("collector", "is not a valid trace request") == 1,
        "nonsense is said to be it",
    )
    assert rank.poll() is None


@pytest.mark.timeout(240)
def test_a_request_that_comes_before_a_box_reaches_it(job: Job) -> None:
    """An agent looks for new boxes the less often, the longer a look takes: on a full machine after a minute."""
    job.collector()
    put_trace(job.folder, WANTED)
    wait_until(
        lambda: job.said("collector", "traces are switched on") == 1, "the collector has seen it"
    )
    job.rank(0, "early-test")
    job.agent("na", "early-test")
    wait_until(
        lambda: job.positions().get("na", Position()).received > 1,
        "the agent knows the job and was told",
    )
    job.rank_with_box(1, "early-test")
    wait_until(
        lambda: list((job.logs / "boxes").rglob("hangdoctor-trace.json")) != [],
        "the request lies beside the box",
        180,
    )


def test_every_agent_hears_it_once_and_a_new_one_at_its_hello() -> None:
    core = Core(Settings(), StallWatch(Bounds()))
    hello = [
        core.received(n, msg.encode(msg.Hello(f"a-{n.decode()}", n.decode())), 1.0, 0.0)
        for n in (b"n1", b"n2")
    ]
    said = msg.Trace(WANTED)
    assert all(not isinstance(i, Send) or i.message != said for out in hello for i in out)
    assert core.switch_trace(WANTED) == [Send(b"n1", said), Send(b"n2", said)]
    late = core.received(b"n3", msg.encode(msg.Hello("a-n3", "n3")), 2.0, 0.0)
    assert Send(b"n3", said) in late
    assert msg.from_collector(msg.encode(said)) == said


def test_a_message_names_no_path_and_has_limits(tmp_path: Path) -> None:
    for field, bad in (
        ("ranks", "../../etc"),
        ("ranks", "0;rm"),
        ("serial", -1),
        ("from_iteration", -1),
        ("follow", ("x" * 300,)),
        ("follow", ("x" * 100,) * 700),
        ("follow", ("",)),
        ("size_mb", 1e9),
        ("size_mb", float("nan")),
    ):
        body = {"type": "Trace", "wanted": Request(1, True)._replace(**{field: bad})}
        with pytest.raises(WireError):
            msg.from_collector([msg.PROTOCOL, msgspec.msgpack.encode(body)])
    extra = msgspec.msgpack.encode(
        {"type": "Trace", "wanted": [1, True], "path": "/etc/passwd", "command": "rm"}
    )
    wanted = msg.from_collector([msg.PROTOCOL, extra])
    assert isinstance(wanted, msg.Trace)
    assert pass_trace_on(wanted.wanted, [tmp_path]) == []
    assert [p.name for p in tmp_path.iterdir()] == ["hangdoctor-trace.json"]
    assert "cannot be written" in pass_trace_on(wanted.wanted, [tmp_path / "not-there"])[0]
    (tmp_path / TRACE_FILE).write_text("[1]")
    with pytest.raises(BadInput):
        TraceRequests(tmp_path).fresh()


def test_files_of_somebody_else_are_left_as_they_are(tmp_path: Path) -> None:
    """Of the names that a collector writes in its folder, one may be in use already."""
    precious = {name: b"mine" for name in ("trace.json", TRACE_FILE, address.FILE)}
    precious |= {"notes.json": b'{"address": 1}'}
    for name, data in precious.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(CollectorError, match="is not hangdoctor's and is left as it is"):
        put_trace(tmp_path, WANTED)
    with pytest.raises(CollectorError, match="is not hangdoctor's and is left as it is"):
        address.publish(tmp_path, "tcp://127.0.0.1:7511")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == precious
    for name in (TRACE_FILE, address.FILE):
        (tmp_path / name).unlink()
    for serial in (5, 6):
        put_trace(tmp_path, Request(serial, True))
        address.publish(tmp_path, f"tcp://127.0.0.1:{serial}")
    assert TraceRequests(tmp_path).fresh() == Request(6, True)
    assert address.published(tmp_path) == "tcp://127.0.0.1:6"
    assert (tmp_path / "trace.json").read_bytes() == b"mine"
