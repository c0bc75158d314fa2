"""Messages between agents and collector: what is too large or of another version is refused,
whoever sent it.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hangdoctor.errors import OtherProtocol, WireError
from hangdoctor.probe.calls.request import Request
from hangdoctor.text.ranges import MAX_RANKS
from hangdoctor.transport import messages as msg


def report_of(size: int) -> list[bytes]:
    """A report that is a valid message of exactly so many bytes."""

    def made(filling: int) -> list[bytes]:
        # Fields that this version does not know are skipped: a newer agent sends such.
        report = msgspec.msgpack.decode(msg.encode(msg.Report(1, 1, 1.0))[1])
        return [msg.PROTOCOL, msgspec.msgpack.encode({**report, "later": b"x" * filling})]

    frames = made(size - len(made(100_000)[1]) + 100_000)
    assert len(frames[1]) == size
    return frames


def relayed_of(size: int) -> list[bytes]:
    nodes = msgspec.msgpack.decode(msg.encode(msg.Relayed(1, 1))[1])
    empty = len(msgspec.msgpack.encode({**nodes, "later": b"x" * 100_000}))
    return [
        msg.PROTOCOL,
        msgspec.msgpack.encode({**nodes, "later": b"x" * (size - empty + 100_000)}),
    ]


def test_only_a_capture_may_be_large() -> None:
    assert isinstance(msg.from_agent(report_of(msg.MAX_SMALL)), msg.Report)
    with pytest.raises(WireError, match=f"{msg.MAX_SMALL + 1} bytes; {msg.MAX_SMALL} are allowed"):
        msg.from_agent(report_of(msg.MAX_SMALL + 1))
    body = b"x" * (2 * msg.MAX_MERGED)
    large = msg.from_agent(msg.encode(msg.Captured("c1", body)))
    assert isinstance(large, msg.Captured) and large.body == body


def test_a_relay_may_send_what_it_merged() -> None:
    assert isinstance(msg.from_agent(relayed_of(msg.MAX_MERGED)), msg.Relayed)
    with pytest.raises(WireError, match="are allowed"):
        msg.from_agent(relayed_of(msg.MAX_MERGED + 1))


def test_nothing_is_decoded_that_is_larger_than_any_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(msg, "_from_agent", None)
    with pytest.raises(WireError, match=f"{msg.MAX_CAPTURE + msg.MAX_SMALL} are allowed"):
        msg.from_agent([msg.PROTOCOL, bytes(msg.MAX_CAPTURE + msg.MAX_SMALL + 1)])


def test_the_collector_sends_small_messages_only() -> None:
    whys = [w for w in ("x" * 400, "x" * 401)]
    assert msg.from_collector(msg.encode(msg.Rejected(whys[0]))) == msg.Rejected(whys[0])
    with pytest.raises(WireError):
        msg.from_collector(msg.encode(msg.Rejected(whys[1])))
    trace = msgspec.msgpack.encode({"type": "Ack", "acked": 1, "later": b"x" * msg.MAX_SMALL})
    with pytest.raises(WireError, match="are allowed"):
        msg.from_collector([msg.PROTOCOL, trace])


@pytest.mark.parametrize("decode", [msg.from_agent, msg.from_collector])
def test_what_is_no_message(decode) -> None:  # type: ignore[no-untyped-def]
    good = msgspec.msgpack.encode({"type": "Ack", "acked": 1})
    for frames in (
        [],
        [good],
        [msg.PROTOCOL, good, b""],
        [b"GET / HTTP/1.1", good],
        [msg.PROTOCOL, b"\xc1"],
        [msg.PROTOCOL, b""],
    ):
        with pytest.raises(WireError) as error:
            decode(frames)
        assert not isinstance(error.value, OtherProtocol)
    with pytest.raises(OtherProtocol, match="hangdoctor/2"):
        decode([b"hangdoctor/2", good])


@pytest.mark.parametrize(
    "change",
    [{"rank": -1}, {"rank": msg.MAX_RANKS}, {"idle_s": -1.0}, {"waits": 101}, {"iteration": -2}],
)
def test_numbers_out_of_range_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(WireError):
        msg.from_agent(msg.encode(msg.Report(1, 1, 1.0, [msg.RankNow(**({"rank": 3} | change))])))  # type: ignore[arg-type]


def rank(**more: Any) -> msg.Report:
    return msg.Report(1, 1, 1.0, [msg.RankNow(**({"rank": 3} | more))])


def node(**more: Any) -> msg.Relayed:
    return msg.Relayed(1, 1, [msg.NodeNews(**({"node": "n"} | more))])


def past(count: int) -> msg.Report:
    phases = [msg.PastPhase("evaluate", 1, 1.0, 1.0)] * count
    return msg.Report(1, 1, 1.0, past=msg.Past(1, phases))


@pytest.mark.parametrize(
    ("largest", "larger"),
    [
        (rank(idle_s=1e9), rank(idle_s=1.1e9)),
        (rank(pid=0), rank(pid=-1)),
        (rank(pid=1 << 62), rank(pid=(1 << 62) + 1)),
        (rank(iteration=1 << 62), rank(iteration=(1 << 62) + 1)),
        (rank(phase="x" * 400), rank(phase="x" * 401)),
        (rank(held="D"), rank(held="DD")),
        (rank(waits=-1), rank(waits=-2)),
        (node(began=1e11), node(began=1.1e11)),
        (node(began=0.0), node(began=-0.1)),
        (node(node="n" * 80), node(node="n" * 81)),
        (node(node="n1"), node(node="n1\n")),
        (node(node="n"), node(node="../n")),
        (past(16), past(17)),
        (
            msg.Report(1, 1, 1.0, [msg.RankNow(0)] * 4096),
            msg.Report(1, 1, 1.0, [msg.RankNow(0)] * 4097),
        ),
        (
            msg.Relayed(1, 1, [msg.NodeNews("n")] * 8192),
            msg.Relayed(1, 1, [msg.NodeNews("n")] * 8193),
        ),
        (msg.Hello("a", "n", world_size=MAX_RANKS), msg.Hello("a", "n", world_size=MAX_RANKS + 1)),
    ],
    ids=lambda message: "",
)
def test_each_field_has_a_largest_value(largest: Any, larger: Any) -> None:
    assert msg.from_agent(msg.encode(largest)) == largest
    with pytest.raises(WireError, match="no message"):
        msg.from_agent(msg.encode(larger))


def test_a_message_of_the_collector_may_be_as_large_as_it_says() -> None:
    empty = len(msgspec.msgpack.encode({"type": "Ack", "acked": 1, "later": b"x" * 70_000}))
    filling = b"x" * (70_000 + msg.MAX_SMALL - empty)
    body = msgspec.msgpack.encode({"type": "Ack", "acked": 1, "later": filling})
    assert len(body) == msg.MAX_SMALL and msg.from_collector([msg.PROTOCOL, body]) == msg.Ack(1)


def test_the_ends_of_the_ranges_are_accepted() -> None:
    ranks = [
        msg.RankNow(0, iteration=-1, waits=-1),
        msg.RankNow(msg.MAX_RANKS - 1, 1 << 62, 1e9, waits=100),
    ]
    report = msg.from_agent(msg.encode(msg.Report(0, 0, 1.0, ranks)))
    assert isinstance(report, msg.Report) and report.ranks == ranks
    hello = msg.Hello("a", "n1", world_size=msg.MAX_RANKS)
    assert msg.from_agent(msg.encode(hello)) == hello
    for seconds in (0.1, 600.0):
        assert msg.from_collector(msg.encode(msg.Level(seconds))) == msg.Level(seconds)
    for seconds in (0.09, 601.0):
        with pytest.raises(WireError):
            msg.from_collector(msg.encode(msg.Level(seconds)))


@pytest.mark.parametrize(
    ("decode", "sent", "meant"),
    [
        (
            msg.from_agent,
            {"type": "Hello", "agent": "a", "node": "n"},
            msg.Hello("a", "n", "", 0, "", False),
        ),
        (
            msg.from_agent,
            {"type": "Report", "seq": 1, "oldest": 1, "at": 2.0},
            msg.Report(seq=1, oldest=1, at=2.0, ranks=[], late_s=0.0, timeout_s=0.0, past=None),
        ),
        (msg.from_agent, {"type": "Relayed", "seq": 1, "oldest": 1}, msg.Relayed(1, 1, [], 0.0)),
        (
            msg.from_agent,
            {"type": "Relayed", "seq": 1, "oldest": 1, "nodes": [{"node": "n"}]},
            msg.Relayed(
                1,
                1,
                [
                    msg.NodeNews(
                        node="n",
                        job="",
                        world_size=0,
                        silent_s=0.0,
                        left=False,
                        ranks=[],
                        timeout_s=0.0,
                        past=None,
                    )
                ],
                0.0,
            ),
        ),
        (msg.from_agent, {"type": "Captured", "id": "c"}, msg.Captured("c", b"", "", False, None)),
        (msg.from_agent, {"type": "Declined", "id": "c", "why": "w"}, msg.Declined("c", "w", None)),
        (msg.from_agent, {"type": "Bye"}, msg.Bye("")),
        (msg.from_collector, {"type": "Welcome", "acked": 3}, msg.Welcome(3, 1.0)),
        (msg.from_collector, {"type": "Capture", "id": "c"}, msg.Capture("c", 1.0, 6.0, 80)),
        (msg.from_collector, {"type": "Trace", "wanted": [1, True]}, msg.Trace(Request(1, True))),
    ],
)
def test_what_the_other_side_leaves_out_means_what_it_always_did(decode, sent, meant) -> None:  # type: ignore[no-untyped-def]
    assert decode([msg.PROTOCOL, msgspec.msgpack.encode(sent)]) == meant


def test_of_a_rank_the_first_fields_are_enough() -> None:
    now = msgspec.convert([5], msg.RankNow)
    assert now == msg.RankNow(
        5,
        pid=0,
        idle_s=0.0,
        iteration=-1,
        phase="",
        op="",
        seq=0,
        inside=False,
        busy=False,
        box=False,
        over=False,
        finished=False,
        waits=-1,
        held="",
        still=False,
        over_s=0.0,
        failed=False,
    )


def test_what_an_other_protocol_says_of_itself_is_cut() -> None:
    with pytest.raises(OtherProtocol, match=r"speaks hangdoctor/9{29}, this one"):
        msg.from_agent([b"hangdoctor/" + b"9" * 100, b""])


@pytest.mark.parametrize(
    "wanted",
    [
        {"ranks": "0-x"},
        {"from_iteration": -1},
        {"size_mb": 0.0},
        {"follow": ("",)},
    ],
)
def test_a_wish_for_traces_that_no_rank_could_read_is_refused(wanted: dict[str, Any]) -> None:
    """As it comes from the collector: the agent writes it where all ranks of its node read it."""
    frames = msg.encode(msg.Trace(Request(1, True, **wanted)))
    with pytest.raises(WireError, match="no message"):
        msg.from_collector(frames)
