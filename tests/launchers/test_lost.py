"""Nodes that need not be waited for: what a knock shows, what follows from it, and who is never
given up.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.launchers import gather
from hangdoctor.launchers.knock import Address, Door, Knocker, Presence, knock, presence
from hangdoctor.launchers.lost_nodes import Standing, Watch, decide
from hangdoctor.launchers.remote import Command, run_all
from hangdoctor.launchers.slurm_nodes import addresses
from hangdoctor.model.capture import NodeCapture, RankCapture
from hangdoctor.transport.capture_codec import pack_capture
from hangdoctor.transport.stdout_frame import HERE, NodeReply, pack

ENV = dict(os.environ)
HOST = "127.0.0.1"

# ------------------------------------------------------------------- a knock


@contextlib.contextmanager
def listening(backlog: int = 8) -> Iterator[socket.socket]:
    with socket.create_server((HOST, 0), backlog=backlog) as server:
        yield server


@contextlib.contextmanager
def served() -> Iterator[int]:
    """A service that hangs up as slurmd does."""
    with listening() as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connection.recv(1)
                    connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(timeout=10)


@contextlib.contextmanager
def silent() -> Iterator[int]:
    """A port whose packets get no answer: the queue of a listener that accepts none is full."""
    with listening(backlog=0) as server, contextlib.ExitStack() as stack:
        port = server.getsockname()[1]
        while True:
            filler = stack.enter_context(socket.socket())
            filler.settimeout(0.5)
            try:
                filler.connect((HOST, port))
            except TimeoutError:
                break
        yield port


def refused() -> int:
    with listening() as server:
        port: int = server.getsockname()[1]
    return port


def test_what_a_knock_shows() -> None:
    with served() as alive, listening() as stopped, silent() as dark:
        stuck, closed = stopped.getsockname()[1], refused()
        ports = {
            (alive,): "alive",
            (stuck,): "stuck",
            (closed,): "closed",
            (dark,): "gone",
            (dark, alive): "stuck",
            (dark, closed): "stuck",
            (closed, alive): "closed",
            (alive, dark): "alive",
        }
        found = {p: knock(Address(HOST, p, "slurmd"), 0.5, 0.5) for p in ports}
    assert found == ports
    assert knock(Address("no-such-host.invalid", (22,), "sshd"), 0.5) == "unknown"
    assert presence([]) == "unknown"


# ------------------------------------------------------------------- the decision

AT = Address("10.0.0.3", (6818, 22), "slurmd")
DOUBTED = Address("10.0.0.3", (6818, 22), "slurmd", doubted="down*")
ALIVE = Door("alive", 0.0, 0.1, AT)
OTHERS = [Standing("n1", 3.5, 0.4, 1.7), Standing("n2", 3.5, 0.5, 1.9)]


def door(presence: Presence, seconds: float, address: Address = AT) -> Door:
    return Door(presence, 10.0, 10.0 + seconds, address)


def lost(
    standing: Standing, at: Door, others: list[Standing] = OTHERS, control: Door = ALIVE
) -> dict[str, str]:
    return decide([*others, standing], {"n1": control, standing.node: at})


LATE = Standing("n3", 3.5)


def test_who_is_lost() -> None:
    assert lost(LATE, door("gone", 2.0)) == {
        "n3": "it did not answer on ports 6818 and 22 for 2.0 s; n[1-2] reported within 1.9 s"
    }
    assert (
        "its slurmd is not running: port 6818 refused connections for 2.5 s"
        in lost(LATE, door("closed", 2.5))["n3"]
    )
    assert (
        "its slurmd does not answer on port 6818 for 3.0 s, but its kernel"
        in lost(LATE, door("stuck", 3.0))["n3"]
    )
    assert lost(LATE, door("stuck", 2.5, DOUBTED))  # Slurm has given it up as well


@pytest.mark.parametrize(
    ("standing", "at"),
    [
        pytest.param(LATE, ALIVE, id="it answers the knock, however slow it is"),
        pytest.param(LATE, Door(), id="no knock has ended"),
        pytest.param(LATE, door("unknown", 60), id="a knock shows nothing"),
        pytest.param(LATE, door("gone", 1.0), id="not for long enough"),
        pytest.param(
            LATE, door("stuck", 2.5), id="its kernel answers: a node without memory does as much"
        ),
        pytest.param(Standing("n3", 30.0, 0.4), door("gone", 30.0), id="its agent runs"),
        pytest.param(Standing("n3", 0.3), door("gone", 2.0), id="only just started"),
    ],
)
def test_who_is_waited_for(standing: Standing, at: Door) -> None:
    assert lost(standing, at) == {}


def test_a_knock_that_even_the_living_do_not_answer_proves_nothing() -> None:
    assert lost(LATE, door("gone", 60.0), control=door("gone", 60.0)) == {}
    assert lost(LATE, door("gone", 60.0), control=Door()) == {}


def test_where_all_are_slow_every_node_gets_more_time() -> None:
    slow = [Standing("n1", 9.0, 3.0, 5.0), Standing("n2", 9.0, 2.0, 6.0)]
    assert lost(Standing("n3", 9.0), door("gone", 7.0), slow) == {}
    assert lost(Standing("n3", 12.1), door("gone", 10.0), slow)


def test_where_the_others_answer_a_knock_slowly_a_silent_service_gets_more_time() -> None:
    busy = Door("alive", 0.0, 0.8, AT, 0.8)
    assert lost(LATE, door("stuck", 6.0), control=busy) == {}
    assert lost(LATE, door("stuck", 6.5), control=busy)
    assert lost(LATE, door("gone", 2.0), control=busy), "a node without power is as silent"


def test_no_node_is_given_up_while_another_may_still_report() -> None:
    others = [OTHERS[0], Standing("n2", 3.5, 0.5)]
    assert lost(LATE, door("gone", 2.0), others) == {}


def test_several_are_lost_together() -> None:
    four = [*OTHERS, LATE, Standing("n4", 3.5)]
    doors = {"n1": ALIVE, "n3": door("gone", 2.0), "n4": door("closed", 2.1)}
    assert set(decide(four, doors)) == {"n3", "n4"}
    assert decide(four, doors | {"n4": door("unknown", 2.1)}) == {}


def test_addresses_out_of_sinfo() -> None:
    def row(node: str, host: str, port: str, state: str) -> str:
        return f"{node:<256}{host:<256}{port:<16}{state:<64}"

    rows = [
        row("n1", "10.0.0.1", "6818", "mixed"),
        row("n3", "10.0.0.3", "6818", "down*"),
        row("x", "", "N/A", "?"),
        "",
        "odd",
    ]
    assert addresses(rows) == {
        "n1": Address("10.0.0.1", (6818, 22), "slurmd"),
        "n3": Address("10.0.0.3", (6818, 22), "slurmd", "down*"),
    }


# ------------------------------------------------------------------- with commands


def report(node: str, ranks: list[int], folder: Path) -> Command:
    captured = [RankCapture(pid=100 + r, rank=r, node=node, world_size=4) for r in ranks]
    path = folder / node
    path.write_text(pack(NodeReply(node, pack_capture(NodeCapture(node, "slurm:7.0", captured)))))
    return Command(node, ["sh", "-c", f"echo {HERE}; cat {path}"])


def test_a_lost_node_is_not_waited_for(tmp_path: Path) -> None:
    with served() as alive, silent() as dark:
        at = {"n1": Address(HOST, (alive,), "slurmd"), "n2": Address(HOST, (dark,), "slurmd")}
        commands = [report("n1", [0, 1], tmp_path), Command("n2", ["sleep", "1000"])]
        outcomes = run_all(commands, time.monotonic() + 50, ENV, watch=Watch(Knocker(at.get)))
    assert [bool(o.lost) for o in outcomes] == [False, True]
    gathered = gather.sort_out(outcomes)
    assert list(gathered.captures) == ["n1"]
    why = gather.why_silent(gathered.silent["n2"], "", 50, "Slurm still lists the node as up")
    assert why.startswith(f"it did not answer on port {dark} for ")
    assert "n1 reported within" in why
    assert why.endswith("Slurm still lists the node as up")


def test_a_stopped_service_is_given_up_after_one_knock(tmp_path: Path) -> None:
    """Its kernel takes the connection, and nothing hangs up: as slurmd, or its whole node, when it
    is stopped.
    """
    with served() as alive, listening() as stopped:
        port: int = stopped.getsockname()[1]
        at = {"n1": Address(HOST, (alive,), "slurmd"), "n2": Address(HOST, (port,), "slurmd")}
        commands = [report("n1", [0, 1], tmp_path), Command("n2", ["sleep", "1000"])]
        outcomes = run_all(commands, time.monotonic() + 50, ENV, watch=Watch(Knocker(at.get)))
        stopped.settimeout(0)
        with stopped.accept()[0], pytest.raises(BlockingIOError):
            stopped.accept()
    assert f"does not answer on port {port} for 3." in outcomes[1].lost
    assert "its kernel does; n1 reported within" in outcomes[1].lost


def test_a_service_that_answers_late_is_waited_for(tmp_path: Path) -> None:
    """The knock that began while it was stopped is answered when it goes on."""
    with served() as alive, listening() as slow:
        port: int = slow.getsockname()[1]

        def answer() -> None:
            slow.settimeout(40)
            connection, _ = slow.accept()
            time.sleep(1.5)
            (tmp_path / "goes-on").touch()
            with contextlib.suppress(OSError):
                while True:
                    connection.close()
                    connection, _ = slow.accept()

        threading.Thread(target=answer, daemon=True).start()
        at = {"n1": Address(HOST, (alive,), "slurmd"), "n2": Address(HOST, (port,), "slurmd")}
        late = report("n2", [2, 3], tmp_path)
        script = f"while [ ! -e {tmp_path}/goes-on ]; do sleep 0.1; done; sleep 3; {late.argv[2]}"
        commands = [report("n1", [0, 1], tmp_path), Command("n2", ["sh", "-c", script])]
        outcomes = run_all(commands, time.monotonic() + 50, ENV, watch=Watch(Knocker(at.get)))
        slow.shutdown(socket.SHUT_RDWR)
    assert [(o.lost, o.reported) for o in outcomes] == [("", True), ("", True)]


def test_a_slow_node_that_answers_the_knock_is_waited_for(tmp_path: Path) -> None:
    """Its agent starts long after all others have reported: when its own knock has been answered."""
    with served() as alive:
        answered = threading.Event()

        def find(node: str) -> Address:
            if node == "n2":
                (tmp_path / "knocked").touch()
                answered.set()
            return Address(HOST, (alive,), "slurmd")

        slow = report("n2", [2, 3], tmp_path)
        script = f"while [ ! -e {tmp_path}/knocked ]; do sleep 0.1; done; sleep 3; {slow.argv[2]}"
        commands = [report("n1", [0, 1], tmp_path), Command("n2", ["sh", "-c", script])]
        outcomes = run_all(commands, time.monotonic() + 50, ENV, watch=Watch(Knocker(find)))
    assert answered.is_set()
    assert [(o.lost, o.reported) for o in outcomes] == [("", True), ("", True)]


def test_an_agent_that_started_and_fell_silent_says_so(tmp_path: Path) -> None:
    commands = [
        report("n1", [0, 1], tmp_path),
        Command("n2", ["sh", "-c", f"echo {HERE}; sleep 1000"]),
    ]
    outcomes = run_all(commands, time.monotonic() + 3, ENV)
    gathered = gather.sort_out(outcomes)
    assert "its agent started after" in gather.why_silent(gathered.silent["n2"], "", 3)
    assert not gathered.damaged
