"""What the training says of itself: taken once, through a tree, and acted for when configured."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from hangdoctor.collector.core import Core
from hangdoctor.collector.instructions import Remember, Settings
from hangdoctor.collector.relay import Relay
from hangdoctor.collector.server import CollectorOptions, Server
from hangdoctor.collector.training_events import Said
from hangdoctor.errors import BadInput, BundleError
from hangdoctor.sidecar import actions
from hangdoctor.sidecar.concluding import Concluder, IncidentMemory
from hangdoctor.sidecar.verdict import Verdict
from hangdoctor.storage.incidents import Incidents
from hangdoctor.transport import messages as msg
from hangdoctor.watch.stall_watch import Learned, StallWatch
from hangdoctor.watch.stall_watch import Settings as Bounds


def event(serial: int, made: int = 5, **more: object) -> msg.EventNow:
    one = msg.EventNow(
        rank=0,
        made=made,
        serial=serial,
        kind="spike",
        text=f"number {serial}",
        iteration=60 + serial,
        at=1000.0,
        age_s=2.0,
        pid=77,
    )
    return msgspec.structs.replace(one, **more)


class Talk:
    """Agents of one node that report events to a core."""

    def __init__(self, core: Core | None = None) -> None:
        self.core = core or Core(Settings(), StallWatch(Bounds()))
        self.now, self.seq = 100.0, 0

    def hello(self, agent: str = "a1") -> None:
        self.seq = 0
        self.now += 20  # the one before is silent
        self.say(agent, msg.Hello(agent, "n1", "slurm:7.0", 4))

    def say(self, agent: str, message: msg.FromAgent) -> None:
        self.core.received(agent.encode(), msg.encode(message), self.now, 0.0)

    def report(self, *events: msg.EventNow, agent: str = "a1", late_s: float = 0.0) -> None:
        self.seq += 1
        report = msg.Report(self.seq, 1, 0.0, late_s=late_s, events=list(events))
        self.say(agent, report)

    def fresh(self) -> list[tuple[int, float]]:
        return [(s.event.serial, s.event.age_s) for s in self.core.events.fresh()]


def test_an_event_is_taken_once_also_from_a_new_agent_and_of_a_new_process_again() -> None:
    talk = Talk()
    talk.hello()
    talk.report(event(1), event(2), late_s=3.0)
    assert [s.node for s in talk.core.events.fresh()] == ["n1", "n1"]
    talk.say("a1", msg.Report(1, 1, 0.0, events=[event(1)]))  # the same report again
    assert talk.fresh() == []
    talk.hello("a2")
    talk.report(event(1), event(2), event(3), agent="a2", late_s=3.0)
    assert talk.fresh() == [(3, 5.0)]
    talk.report(event(1, made=6), agent="a2")
    assert talk.fresh() == [(1, 2.0)]
    assert [i for i in talk.core.tick(talk.now + 2, 0.0) if isinstance(i, Remember)]


def test_a_tree_passes_events_up_with_their_age_and_no_message_has_too_many() -> None:
    up: list[msg.Relayed] = []
    below = Talk(Relay(Settings(), None, up.append, lambda answer: True))
    below.hello()
    for first in (1, 1 + msg.MOST_EVENTS):
        below.report(*(event(n) for n in range(first, first + msg.MOST_EVENTS)))
    below.core.tick(below.now + 4, 0.0)
    below.core.tick(below.now + 5, 0.0)
    above = Talk()
    above.say("r", msg.Hello("r", "rack1", relay=True))
    for number, relayed in enumerate(up, 1):
        relayed.seq, relayed.oldest = number, 1
        above.say("r", relayed)
    found = above.fresh()
    assert [serial for serial, _ in found] == list(range(1, 2 * msg.MOST_EVENTS + 1))
    assert found[0][1] == 6.0 and found[-1][1] == 7.0


# ----------------------------------------------------------------- kept and acted for


def settings(tmp_path: Path, on: str) -> actions.Config:
    text = f'[[action]]\nkind = "command"\ncommand = ["touch", "{tmp_path}/{{kind}}"]\non = {on}\n'
    (tmp_path / "hangdoctor.toml").write_text(text)
    return actions.load(tmp_path / "hangdoctor.toml")


def said(serial: int, **more: object) -> Said:
    return Said(event(serial, **more), "n1", "slurm:7.0")


def test_no_action_unless_configured_for_it(tmp_path: Path) -> None:
    verdict = Verdict.of_event(said(1))
    for on in ('["hang", "slow", "failed", "unknown"]', '["event:nan"]'):
        assert actions.Actor(settings(tmp_path, on)).act(verdict, 0.0) == []
    for on in ('["event"]', '["hang", "event:spike"]'):
        actor = actions.Actor(settings(tmp_path, on))
        assert actor.act(verdict, 0.0) == ["command: touch exited with code 0"]
    assert (tmp_path / "spike").exists()
    with pytest.raises(BadInput, match="an action is on 'spike'"):
        settings(tmp_path, '["spike"]')


def test_an_event_has_a_cool_down_of_its_own_and_none_of_the_past_is_acted_for(
    tmp_path: Path,
) -> None:
    actor = actions.Actor(settings(tmp_path, '["hang", "event"]'))
    assert actor.act(Verdict.of_event(said(1)), 0.0, age_s=7200) == [
        "no action: that was 2.0 h ago"
    ]
    assert "exited" in actor.act(Verdict.of_event(said(2)), 0.0)[0]
    assert "cool-down" in actor.act(Verdict.of_event(said(3)), 60.0)[0]
    hang = Verdict("id", "slurm:7.0", "hang", "stopped", confidence=1.0)
    assert "exited" in actor.act(hang, 60.0)[0]


def test_a_signal_goes_to_the_process_that_said_it() -> None:
    config = actions.Config(action=[actions.Action("signal", on=("event",))])
    [line] = actions.Actor(config, dry_run=True).act(Verdict.of_event(said(1)), 0.0)
    assert line.endswith("-w n1 kill -TERM 77")


def memory_of(folder: Path, events: list[Said]) -> list[Said]:
    return IncidentMemory(Incidents(folder)).writing({}, Learned(), events)()


def test_a_collector_that_was_restarted_knows_what_it_has_acted_for(tmp_path: Path) -> None:
    assert memory_of(tmp_path, [said(1), said(2)]) == [said(1), said(2)]
    assert memory_of(tmp_path, [said(2), said(3)]) == [said(3)]
    handler = Concluder(Incidents(tmp_path), actions.Actor(settings(tmp_path, '["event"]')))
    handler.said([said(1), said(2)])
    rows = Incidents(tmp_path).events()
    assert [(r.serial, r.kind, r.iteration, r.text) for r in rows] == [
        (n, "spike", 60 + n, f"number {n}") for n in (1, 2, 3)
    ]
    assert rows[0].actions == "command: touch exited with code 0"
    assert "cool-down" in rows[1].actions and rows[2].actions == ""
    again = Concluder(Incidents(tmp_path), actions.Actor(settings(tmp_path, '["event"]')))
    assert "cool-down" in again.actor.act(Verdict.of_event(said(9)), time.monotonic())[0]
    assert Incidents(tmp_path).event_counts() == {"spike": 3}


class FullDisk(IncidentMemory):
    """Takes nothing the first time."""

    full = True

    def writing(self, positions, learned, events):  # type: ignore[no-untyped-def]
        write = super().writing(positions, learned, events)

        def once() -> list[Said]:
            if self.full:
                self.full = False
                raise BundleError("the disk is full", "")
            return write()

        return once


def test_events_that_the_disk_does_not_take_are_kept_when_it_does(tmp_path: Path) -> None:
    talk = Talk()
    talk.hello()
    talk.report(event(1))
    incidents = Incidents(tmp_path)
    handler = Concluder(incidents, actions.Actor(settings(tmp_path, '["event"]')))

    async def keep() -> list[bool]:
        options = CollectorOptions(tmp_path, insecure=True)
        server = Server(options, talk.core, FullDisk(incidents), handler)
        kept = [await server._keep()]
        talk.report(event(2))
        kept.append(await server._keep())
        await server._finish()
        server.context.destroy(linger=0)
        return kept

    assert asyncio.run(keep()) == [False, True]
    assert [r.serial for r in incidents.events()] == [1, 2]
    assert talk.core.counters.events == 2 and (tmp_path / "spike").exists()
