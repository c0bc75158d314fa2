"""The collector's core: events in, instructions out, without sockets and without time."""

from __future__ import annotations

import random
import zlib

import msgspec
import pytest

from hangdoctor.collector.core import Core, Settings
from hangdoctor.collector.instructions import Conclude, Instruction, Log, Position, Remember, Send
from hangdoctor.errors import OtherProtocol, WireError
from hangdoctor.model.capture import NodeCapture, RankCapture
from hangdoctor.model.operations import Group, Operation, RankOps
from hangdoctor.transport import capture_codec
from hangdoctor.transport import messages as msg
from hangdoctor.watch.stall_watch import Settings as Bounds
from hangdoctor.watch.stall_watch import StallWatch


class Talk:
    """A core and what peers say to it."""

    def __init__(self, positions: dict[str, Position] | None = None, **settings: float) -> None:
        bounds = Bounds(stall_after_s=10)
        self.core = Core(Settings(**settings), StallWatch(bounds), positions)  # type: ignore[arg-type]
        self.now = 100.0
        self.seq: dict[str, int] = {}

    def say(self, peer: str, message: msg.FromAgent) -> list[Instruction]:
        return self.core.received(peer.encode(), msg.encode(message), self.now, 0.0)

    def raw(self, peer: str, *frames: bytes) -> list[Instruction]:
        return self.core.received(peer.encode(), list(frames), self.now, 0.0)

    def hello(self, node: str, agent: str = "") -> list[Instruction]:
        return self.say(agent or f"a-{node}", msg.Hello(agent or f"a-{node}", node, "slurm:7.0", 4))

    def report(
        self,
        node: str,
        idle: float = 0.0,
        ranks: tuple[int, ...] = (),
        seq: int = 0,
        oldest: int = 1,
    ) -> list[Instruction]:
        self.seq[node] = seq or self.seq.get(node, 0) + 1
        told = [msg.RankNow(r, idle_s=idle, box=True) for r in ranks]
        return self.say(f"a-{node}", msg.Report(self.seq[node], oldest, 0.0, told))

    def tick(self, seconds: float = 1.0) -> list[Instruction]:
        self.now += seconds
        return self.core.tick(self.now, 0.0)

    def stall(self) -> tuple[str, list[Instruction]]:
        """Two nodes with two ranks each; both go on reporting, and nothing moves."""
        for node, ranks in (("n1", (0, 1)), ("n2", (2, 3))):
            self.hello(node)
            self.report(node, 0.0, ranks)
        for _ in range(30):
            out = self.tick()
            sent = [
                i.message for i in out if isinstance(i, Send) and isinstance(i.message, msg.Capture)
            ]
            if sent:
                return sent[0].id, out
            self.report("n1")
            self.report("n2")
        raise AssertionError("no stall")

    def captured(self, node: str, id: str, ranks: tuple[int, ...]) -> list[Instruction]:
        capture = NodeCapture(
            "../../etc",
            "slurm:7.0",
            [RankCapture(pid=10 + r, rank=r, node="x", world_size=4) for r in ranks],
        )
        return self.say(f"a-{node}", msg.Captured(id, capture_codec.pack_capture(capture)))


def of(kind: type, out: list[Instruction]) -> list[Instruction]:
    return [i for i in out if isinstance(i, kind)]


def logs(out: list[Instruction]) -> list[str]:
    return [i.text for i in out if isinstance(i, Log)]


def replies(out: list[Instruction]) -> list[object]:
    return [i.message for i in out if isinstance(i, Send)]


def test_reports_that_overtake_a_hello_are_no_offence() -> None:
    """A collector that was restarted asks who it is; a window of reports may be under way to it."""
    talk = Talk({"a-n1": Position("n1", 3, 3)})
    for seq in range(4, 68):
        assert replies(talk.report("n1", seq=seq)) == [msg.WhoAreYou()]
    assert replies(talk.hello("n1")) == [msg.Welcome(3, 1.0)]
    talk.report("n1", seq=4)
    assert talk.core.positions["a-n1"].seq == 4


def test_reports_are_counted_once_and_acknowledged_after_they_are_kept() -> None:
    talk = Talk()
    assert replies(talk.hello("n1")) == [msg.Welcome(0, 1.0)]
    for seq in (1, 2, 2, 1, 3):
        talk.report("n1", seq=seq)
    out = talk.tick()
    [kept] = out
    assert isinstance(kept, Remember) and [a.message for a in kept.acks] == [msg.Ack(3)]
    assert talk.core.positions["a-n1"] == Position("n1", 3, 3, 0, 2)
    assert of(Remember, talk.tick()) == []


def test_only_acknowledgements_depend_on_what_is_kept() -> None:
    """On a full disk nothing can be remembered; a capture that begins in the same moment is asked
    for all the same.
    """
    talk = Talk()
    talk.hello("n1")
    talk.report("n1", ranks=(0,))
    talk.core.ask("asked for")
    out = talk.tick()
    [kept] = of(Remember, out)
    assert isinstance(kept, Remember) and [type(a.message) for a in kept.acks] == [msg.Ack]
    assert [type(m) for m in replies(out)] == [msg.Capture]


@pytest.mark.parametrize("words", ["stall of my own", "slow today"])
def test_a_persons_words_are_no_reason_of_the_watchdogs(words: str) -> None:
    """Whoever asks gets a capture, whatever the words begin with; also while the job goes on."""
    talk = Talk()
    talk.hello("n1")
    talk.report("n1", ranks=(0, 1, 2, 3))
    talk.core.ask(words)
    [wanted] = [m for m in replies(talk.tick()) if isinstance(m, msg.Capture)]
    [done] = of(Conclude, talk.captured("n1", wanted.id, (0, 1, 2, 3)))
    assert isinstance(done, Conclude)
    assert (str(done.reason), done.capture.notes) == (words, [words])


def test_a_gap_is_asked_for_again_unless_the_spool_has_lost_it() -> None:
    talk = Talk()
    talk.hello("n1")
    talk.report("n1")
    assert replies(talk.report("n1", seq=4, oldest=2)) == [msg.Welcome(1, 1.0)]
    talk.report("n1", seq=6, oldest=6)
    assert talk.core.positions["a-n1"] == Position("n1", 6, 2, 4, 0)


def test_a_collector_that_restarts_asks_who_it_is_and_goes_on_where_it_was() -> None:
    talk = Talk({"a-n1": Position("n1", 41, 41)})
    assert replies(talk.report("n1", seq=50)) == [msg.WhoAreYou()]
    assert replies(talk.hello("n1")) == [msg.Welcome(41, 1.0)]


def test_a_stall_is_captured_joined_and_reported_once() -> None:
    talk = Talk()
    id, out = talk.stall()
    assert {i.peer for i in out if isinstance(i, Send) and isinstance(i.message, msg.Capture)} == {
        b"a-n1",
        b"a-n2",
    }
    assert of(Conclude, talk.captured("n1", id, (0, 1))) == []
    [done] = of(Conclude, talk.captured("n2", id, (2, 3)))
    assert isinstance(done, Conclude)
    assert [n.node for n in done.capture.nodes] == [
        "n1",
        "n2",
    ]  # the node that said hello, whatever the capture says
    assert {r.node for r in done.capture.ranks()} == {"n1", "n2"}
    assert done.capture.world_size == 4 and done.capture.silent == []
    assert talk.core.concluded(id, "hang", talk.now) == []
    for _ in range(60):
        assert (
            of(
                Send,
                [
                    i
                    for i in talk.tick()
                    if isinstance(i, Send) and isinstance(i.message, msg.Capture)
                ],
            )
            == []
        )
        talk.report("n1")
        talk.report("n2")


def test_silence_and_refusal_and_ended_ranks_each_say_what_they_are() -> None:
    talk = Talk()
    id, _ = talk.stall()
    talk.say("a-n1", msg.Declined(id, "busy"))
    [done] = of(Conclude, talk.say("a-n2", msg.Captured(id, error="no rank", no_ranks=True)))
    assert isinstance(done, Conclude)
    assert [(s.node, s.ranks) for s in done.capture.silent] == [("n1", [0, 1])]
    assert "refused to capture: busy" in done.capture.silent[0].why
    assert [(r.rank, r.gone) for r in done.capture.ranks()] == [(2, True), (3, True)]


def test_the_end_of_the_job_is_said_at_once_with_what_is_waited_for() -> None:
    talk = Talk(linger_s=60.0)
    talk.hello("n1")
    talk.report("n1", ranks=(0, 1))
    assert not logs(talk.tick())

    def ends(seq: int, *finished: bool) -> list[str]:
        """The lines of the ticks after a report that ranks have ended; of the others, that they run."""
        told = [
            msg.RankNow(r, box=True, over=True, finished=clean) for r, clean in enumerate(finished)
        ]
        told += [msg.RankNow(r, box=True) for r in range(len(finished), 2)]
        talk.say("a-n1", msg.Report(seq, 1, 0.0, told))
        return [line for _ in range(5) for line in logs(talk.tick())]

    assert not ends(2, True)
    waits = "waiting 60 s for ranks that start again (Ctrl-C ends now)"
    assert ends(3, True, True) == [f"the job has ended: all 2 ranks have finished; {waits}"]
    assert not ends(4, True, True)
    assert "ranks of the job have started again" in ends(5)
    assert f"the job has ended: all 2 ranks have ended, 1 without finishing; {waits}" in ends(
        6, True, False
    )


def test_a_node_that_never_answers_is_waited_for_until_the_deadline_only() -> None:
    talk = Talk()
    id, _ = talk.stall()
    talk.captured("n1", id, (0, 1))
    done: list[Instruction] = []
    waited = 0
    while not done:
        talk.report("n1")
        done = of(Conclude, talk.tick())
        waited += 1
    assert 8 <= waited <= 10
    assert isinstance(done[0], Conclude)
    assert [(s.node, s.ranks) for s in done[0].capture.silent] == [("n2", [2, 3])]


def test_a_rank_that_came_up_again_on_another_node_is_neither_gone_nor_silent() -> None:
    """A node is replaced, or ranks are numbered anew: what is reported about earlier places accuses
    no rank.
    """
    talk = Talk()
    talk.hello("dead")
    talk.report("dead", ranks=(2, 3))
    talk.hello("n1")
    talk.report("n1", ranks=(0, 1, 2))
    talk.say("a-n1", msg.Report(2, 1, 0.0, [msg.RankNow(2, box=True, over=True)]))
    talk.seq["n1"] = 2
    talk.now += 20
    id, _ = talk.stall()
    talk.captured("n1", id, (0, 1))
    [done] = of(Conclude, talk.captured("n2", id, (2, 3)))
    assert isinstance(done, Conclude)
    assert [(r.rank, r.gone) for r in done.capture.ranks()] == [
        (0, False),
        (1, False),
        (2, False),
        (3, False),
    ]
    assert done.capture.silent == []


def test_the_ranks_of_a_run_that_is_over_are_none_of_the_next() -> None:
    """Training ends, and an evaluation with fewer ranks begins beside the same agents."""
    talk = Talk()
    for node, ranks in (("n1", (0, 1)), ("n2", (2, 3))):
        talk.hello(node)
        talk.report(node, ranks=ranks)
        over = [msg.RankNow(r, box=True, over=True) for r in ranks]
        talk.say(f"a-{node}", msg.Report(2, 1, 0.0, over))
        talk.seq[node] = 2
    talk.say("a-n2", msg.Hello("a-n2", "n2", "slurm:7.1", 1))
    talk.report("n2", ranks=(0,))
    talk.say("a-n1", msg.Hello("a-n1", "n1", "slurm:7.1", 1))
    assert (talk.core.watchdog.ranks, talk.core.watchdog.living) == (1, 1)
    assert [n.ranks for n in talk.core.nodes.values()] == [{}, {0: False}]


def test_progress_during_the_capture_takes_it_back() -> None:
    talk = Talk()
    id, _ = talk.stall()
    talk.captured("n1", id, (0, 1))
    talk.report("n2", 0.0, (2, 3))
    out = talk.captured("n2", id, (2, 3))
    assert of(Conclude, out) == [] and "makes progress" in out[-1].text  # type: ignore[union-attr]


def test_a_healthy_capture_is_no_incident() -> None:
    talk = Talk()
    id, _ = talk.stall()
    talk.captured("n1", id, (0, 1))
    talk.captured("n2", id, (2, 3))
    assert of(Log, talk.core.concluded(id, "healthy", talk.now))
    assert (talk.core.counters.incidents, talk.core.counters.false_alarms) == (0, 1)


def test_another_version_says_so_once() -> None:
    talk = Talk()
    first = talk.raw("old", b"hangdoctor/99", b"anything")
    [answer] = replies(first)
    assert (
        isinstance(answer, msg.Rejected)
        and "hangdoctor/99" in answer.why
        and "hangdoctor/1" in answer.why
    )
    assert replies(talk.raw("old", b"hangdoctor/99", b"anything")) == []
    with pytest.raises(OtherProtocol, match="hangdoctor/99"):
        msg.from_collector([b"hangdoctor/99", b"x"])


def test_a_second_agent_of_a_living_node_is_refused_and_of_a_silent_one_welcome() -> None:
    talk = Talk()
    talk.hello("n1")
    [no] = replies(talk.hello("n1", "impostor"))
    assert isinstance(no, msg.Rejected)
    assert talk.core.nodes["n1"].agent == "a-n1"
    talk.now += 20
    assert replies(talk.hello("n1", "successor")) == [msg.Welcome(0, 1.0)]


def hostile(chance: random.Random) -> list[bytes]:
    """One bad message: noise, cut, nested, out of range, of the wrong shape, a bomb."""
    body = [
        lambda: chance.randbytes(chance.randrange(400)),
        lambda: b"\x91" * 5000,
        lambda: msgspec.msgpack.encode({"type": "Hello", "agent": "../../x", "node": "a/b"}),
        lambda: msgspec.msgpack.encode({"type": "Report", "seq": -1, "oldest": 1, "at": "now"}),
        lambda: msgspec.msgpack.encode(
            {"type": "Report", "seq": 1, "oldest": 1, "at": 0.0, "ranks": [{"rank": 1 << 40}]}
        ),
        lambda: msgspec.msgpack.encode({"type": "Exec", "command": "rm"}),
        lambda: msgspec.msgpack.encode({"type": "Hello", "agent": "a", "node": "n" * 5000}),
        lambda: b"\xdd\xff\xff\xff\xff" + b"\0" * 50,
        lambda: b"\x82\xa4type\xa3Bye\xa3why\xa2\xff\xfe",  # text that is not UTF-8
        lambda: msg.encode(msg.Hello("good", "n9"))[1][: chance.randrange(1, 12)],
        lambda: b"x" * (msg.MAX_SMALL + 1),
    ]
    frames = [msg.PROTOCOL, chance.choice(body)()]
    return chance.choice(
        [frames, frames, frames, frames[:1], [*frames, b"more"], [b"GET / HTTP/1.1", b""], []]
    )


def test_a_thousand_malformed_messages_cost_the_others_nothing() -> None:
    talk, chance = Talk(), random.Random(7)
    talk.hello("n1")
    for i in range(1000):
        talk.raw(f"bad-{i % 40}", *hostile(chance))
        if i % 10 == 0:
            talk.report("n1")
    counters = talk.core.counters
    assert counters.malformed == counters.cut_off * 10 == 400 and counters.cut_off == 40
    for i in range(1000):
        assert talk.raw(
            f"other-{i}", *hostile(chance)
        )  # each from a peer of its own: all are looked at
    assert counters.malformed == 1400 and counters.cut_off == 40
    assert talk.core.positions["a-n1"].received == 100
    assert set(talk.core.nodes) == {"n1"}


def test_a_flood_is_cut_off_and_a_rejoinder_ignored() -> None:
    talk = Talk(rate=100, burst=500)
    talk.hello("n1")
    talk.hello("n2")
    for i in range(3000):
        talk.report("n2", seq=i + 1)
    assert talk.core.counters.flooded == 1
    assert talk.core.positions["a-n2"].received < 600
    assert talk.hello("n2") == []
    talk.report("n1")
    assert talk.core.positions["a-n1"].received == 1


def test_replays_of_a_whole_conversation_change_nothing() -> None:
    talk = Talk()
    said = [msg.encode(msg.Hello("a-n1", "n1", "j", 2))]
    said += [msg.encode(msg.Report(i, 1, 0.0, [msg.RankNow(0)])) for i in range(1, 50)]
    for frames in said * 3:
        talk.raw("a-n1", *frames)
    assert talk.core.positions["a-n1"] == Position("n1", 49, 49, 0, 98)


def test_a_capture_that_is_a_bomb_or_damaged_is_an_error_of_that_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(capture_codec, "MAX_INFLATED", 1 << 20)
    bomb = zlib.compress(b"\0" * (capture_codec.MAX_INFLATED + 10))
    for body in (bomb, b"nothing", zlib.compress(b"no capture"), bomb[:50]):
        with pytest.raises(WireError):
            capture_codec.unpack_capture(body)
    talk = Talk()
    id, _ = talk.stall()
    talk.say("a-n1", msg.Captured(id, b"damaged"))
    [done] = of(Conclude, talk.captured("n2", id, (2, 3)))
    assert isinstance(done, Conclude)
    assert [s.node for s in done.capture.silent] == ["n1"]


def test_a_capture_travels_whole_and_each_group_is_kept_once() -> None:
    chance = random.Random(3)
    groups = [
        Group("w", list(range(64)), "world"),
        Group("d", list(range(1, 64, 8)), "dp"),
        Group("x", sorted(chance.sample(range(64), 20))),
    ]
    ops = [
        RankOps(
            r,
            64,
            groups=groups,
            operations=[
                Operation(
                    "w", 1, "all_reduce", "done", entered_s=1.7e9 + 0.125, left_s=1.7e9 + 0.5
                ),
                Operation("w", 2, "all_reduce", entered_s=1.7e9),
            ],
        )
        for r in range(2)
    ]
    capture = NodeCapture(
        "n1", "j", [RankCapture(pid=r, rank=r, ops=ops[r], ops_before=ops[r]) for r in range(2)]
    )
    body, known = capture_codec.pack_capture(capture), capture_codec.Shared()
    assert (
        capture.ranks[0].ops is not None and capture.ranks[0].ops.groups[0].ranks
    )  # what is packed stays as it was
    first, second = (
        capture_codec.unpack_capture(body, known),
        capture_codec.unpack_capture(body, known),
    )
    assert set(known.members) == {"w", "d", "x"}
    assert [o.groups for r in first.ranks[:1] if (o := r.ops)] == [groups]
    assert all(
        not g.ranks for r in [*first.ranks[1:], *second.ranks] if r.ops for g in r.ops.groups
    )
    assert first.ranks[1].ops is not None and first.ranks[1].ops.operations == ops[1].operations
    for _ in range(200):
        ranks = sorted(chance.sample(range(100), chance.randrange(40)))
        assert capture_codec.from_runs(capture_codec.to_runs(ranks)) == ranks
    with pytest.raises(WireError):
        capture_codec.from_runs([(0, 1, 1 << 40)])


def test_too_many_nodes_are_refused() -> None:
    talk = Talk(max_nodes=3)
    for i in range(5):
        talk.hello(f"n{i}")
    assert len(talk.core.nodes) == 3


def test_agents_that_come_and_go_do_not_fill_the_memory() -> None:
    talk = Talk(max_nodes=3)
    for i in range(100):
        talk.hello("n1", f"a-{i}")
        talk.say(f"a-{i}", msg.Report(1, 1, 0.0))
        talk.say(f"a-{i}", msg.Bye())
        assert isinstance(talk.tick()[0], Remember)
    assert len(talk.core.positions) <= 7 and talk.core.positions["a-99"].received == 1


def test_who_speaks_after_the_dismissal_is_told_too() -> None:
    talk = Talk()
    for node in ("n1", "n2"):
        talk.hello(node)
    told = [i.peer for i in talk.core.dismiss() if isinstance(i, Send)]
    assert sorted(told) == [b"a-n1", b"a-n2"]
    assert talk.report("n1") == [Send(b"a-n1", msg.Dismissed())]  # it had missed it
    assert talk.hello("n3") == [Send(b"a-n3", msg.Dismissed())]
    assert not talk.core.deserted()
    for node in ("n1", "n2"):
        talk.say(f"a-{node}", msg.Bye("its collector has ended"))
    assert talk.core.deserted()
