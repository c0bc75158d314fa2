"""NCCL's RAS: sample texts, sample JSON, and its protocol against a server that speaks it."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.errors import BadInput
from hangdoctor.model.ras_report import RasCounts, RasProcess
from hangdoctor.readers import ras_reader

DATA = Path(__file__).parents[1] / "data" / "ras"
JSON, TEXT = "missing-2.29.json", "dead-2.28.txt"


class FakeRasServer:
    """Speaks the server's side of the RAS protocol once, as NCCL's client_support.cc does."""

    def __init__(self, json: bool = True, protocol: int = 2, answers: bool = True) -> None:
        self.json, self.protocol, self.answers = json, protocol, answers
        self.heard: list[str] = []
        self.done = threading.Event()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        connection, _ = self.socket.accept()
        form = "text"
        with connection, connection.makefile("rwb", buffering=0) as stream:
            for raw in stream:
                line = raw.decode().strip()
                self.heard.append(line)
                if not self.answers:
                    self.done.wait(30)
                    return
                match line.lower().split():
                    case ["client", "protocol", _]:
                        stream.write(f"SERVER PROTOCOL {self.protocol}\n".encode())
                    case ["timeout", _]:
                        stream.write(b"OK\n")
                    case ["set", "format", form] if self.json:
                        stream.write(b"OK\n")
                    case ["verbose", "status"]:
                        stream.write(
                            (DATA / (JSON if form == "json" and self.json else TEXT)).read_bytes()
                        )
                        return
                    case _:
                        stream.write(f"ERROR: Unknown command '{line}'\n".encode())

    def close(self) -> None:
        self.done.set()
        self.socket.close()
        self.thread.join(10)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[FakeRasServer]:
    fake = FakeRasServer(**getattr(request, "param", {}))
    yield fake
    fake.close()


def test_json_is_asked_for_and_read(server: FakeRasServer) -> None:
    report = ras_reader.query(port=server.port, timeout_s=10)
    assert server.heard == ["CLIENT PROTOCOL 2", "TIMEOUT 5", "SET FORMAT json", "VERBOSE STATUS"]
    assert (report.form, report.version, report.notes) == ("json", "2.29.1", [])


@pytest.mark.parametrize("server", [{"json": False, "protocol": 1}], indirect=True)
def test_text_is_read_from_an_older_nccl(server: FakeRasServer) -> None:
    report = ras_reader.query(port=server.port, timeout_s=10)
    assert report.form == "text" and report.communicators[0].hash == "cf264af53edbe986"
    assert report.notes == ["RAS speaks protocol 1, this reader needs 2"]


@pytest.mark.parametrize("server", [{"answers": False}], indirect=True)
def test_silence_ends_at_the_deadline(server: FakeRasServer) -> None:
    with pytest.raises(ras_reader.NoRas, match=r"within 0\.3 s"):
        ras_reader.query(port=server.port, timeout_s=0.3)


def test_no_server_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ras_reader.NoRas, match="refused") as e:
        ras_reader.query(port=port, timeout_s=1)
    assert "NCCL_RAS_ENABLE" in e.value.help


def test_json_counts_missing_and_errors() -> None:
    report = ras_reader.read_file(DATA / JSON)
    comm, other = report.communicators
    assert comm.ranks[1].launched["all_reduce"] == 16 and comm.ranks[1].process == RasProcess(
        "10.1.0.6", 101, "1"
    )
    assert comm.differences == [
        RasCounts("all_reduce", 17, 2, [0, 2]),
        RasCounts("all_reduce", 16, 1, [1]),
    ]
    assert [(r.rank, r.state) for r in comm.missing] == [(3, "dead")]
    assert (comm.ranks[2].state, comm.ranks[2].error) == ("error", "async_error 6")
    assert comm.problems == ["INCOMPLETE", "ERROR", "MISMATCH"]
    assert [r.state for r in other.ranks] == ["running", "init"] and other.differences == []
    assert other.problems == ["MISMATCH"], "in their states alone"
    assert report.dead == [RasProcess("10.1.0.7", 201, "1")] and report.timeouts == 1


def test_text_of_2_24_counts_all_operations_together() -> None:
    (comm,) = ras_reader.read_file(DATA / "mismatch-2.24.txt").communicators
    assert comm.size == 8 and comm.problems == ["MISMATCH"]
    assert comm.differences == [
        RasCounts("", 6650, 6, [0, 1, 4, 5, 6, 7]),
        RasCounts("", 6649, 2, [2, 3]),
    ]
    assert comm.ranks[0].process == RasProcess("10.1.0.7", 4102, "2")


def test_verbose_text_names_dead_missing_and_outliers() -> None:
    report = ras_reader.read_file(DATA / TEXT)
    (comm,) = report.communicators
    assert report.dead == [RasProcess("10.1.0.9", 3487984, "5")]
    assert report.silent == [RasProcess("10.1.0.9", 3487985, "6")]
    assert [(r.rank, r.state) for r in comm.missing] == [(21, "dead"), (22, "missing")]
    assert {r.rank: r.state for r in comm.ranks} == {4: "init", 7: "running", 30: "running"}
    assert next(r for r in comm.ranks if r.rank == 7).launched == {
        "all_reduce": 811,
        "reduce_scatter": 0,
    }
    majority = next(c for c in comm.differences if c.launched == 40)
    assert majority.ranks == [r for r in range(32) if r not in (7, 21, 22, 30)]
    assert report.timeouts == 2


@pytest.mark.parametrize(
    "data", [b"", b"hello", b'{"communicators": 1}', (DATA / JSON).read_bytes()[:-20]]
)
def test_what_is_no_ras_output(data: bytes) -> None:
    with pytest.raises(BadInput):
        ras_reader.parse(data)


def test_answers_are_known_by_their_first_bytes() -> None:
    assert all(
        ras_reader.is_ras((DATA / name).read_bytes()) for name in (JSON, TEXT, "mismatch-2.24.txt")
    )
    assert (
        not ras_reader.is_ras(b'{"version": "2.10"}')
        and not ras_reader.is_ras(b"Process 7: python")
        and not ras_reader.is_ras(b"")
    )


def json_of(**rank: object) -> bytes:
    row = {
        "rank": 1,
        "host": "10.0.0.1",
        "pid": 7,
        "nvml_dev": 3,
        "collective_counts": {"AllReduce": 5},
    } | rank
    comm = {"hash": "0xab", "size": 2, "ranks": [row, 7], "missing_ranks": []}
    raw = {"nccl_version": "2.29.1", "communicators": [comm, "x"], "ras": {"timeouts_count": 4}}
    return json.dumps(raw).encode()


@pytest.mark.parametrize(
    ("status", "state", "error"),
    [
        ({}, "running", ""),
        ({"init_state": 7}, "init", ""),
        ({"init_state": 5}, "error", "init_state 5"),
        ({"abort_flag": True}, "abort", ""),
        ({"async_error": 6, "abort_flag": True}, "error", "async_error 6"),
        ({"async_error": 7}, "running", ""),
        ({"init_state": 2, "async_error": 3}, "error", "init_state 2, async_error 3"),
        ({"finalize_called": True}, "finalize", ""),
        ({"destroy_flag": True}, "finalize", ""),
        ({"abort_flag": True, "destroy_flag": True}, "abort", ""),
    ],
)
def test_states_of_a_rank(status: dict[str, object], state: str, error: str) -> None:
    report = ras_reader.parse(json_of(status=status))
    [comm] = report.communicators
    [rank] = comm.ranks
    assert (rank.rank, rank.process, rank.launched) == (
        1,
        RasProcess("10.0.0.1", 7, "3"),
        {"all_reduce": 5},
    )
    assert (rank.state, rank.error) == (state, error)
    assert (report.timeouts, comm.hash, comm.size) == (4, "ab", 2)
    assert comm.problems == (["ERROR"] if state == "error" else [])


def test_missing_ranks_are_counted_once() -> None:
    def gone(**status: object) -> dict[str, object]:
        return {"rank": 1, "host": "h", "pid": 7, "nvml_dev": 0, "status": status}

    rows = [
        gone(considered_dead=True),
        gone(unresponsive=True),
        gone(unresponsive=True, considered_dead=True),
        gone(),
        {"status": 3},
    ]
    comm = {"hash": "1", "size": -5, "missing_ranks": rows, "ranks": None}
    report = ras_reader.parse(json.dumps({"communicators": [comm, comm]}).encode())
    assert [r.state for r in report.communicators[0].missing] == [
        "dead",
        "unresponsive",
        "dead",
        "nocomm",
        "nocomm",
    ]
    # In one communicator silent, in another given up, and in both of them more than once.
    assert report.dead == [RasProcess("h", 7, "0")] and report.silent == []
    assert (report.communicators[0].size, report.timeouts, report.version) == (0, 0, "")
    assert report.communicators[0].problems == ["INCOMPLETE"]


def test_numbers_that_fit_no_field_are_zero() -> None:
    report = ras_reader.parse(
        json_of(pid=1 << 63, rank="1", host=["x"], collective_counts={"AllReduce": (1 << 63) - 1})
    )
    [rank] = report.communicators[0].ranks
    assert (rank.rank, rank.process, rank.launched) == (
        0,
        RasProcess("", 0, "3"),
        {"all_reduce": (1 << 63) - 1},
    )
    assert (
        len(ras_reader.parse(json_of(host="x" * 2000)).communicators[0].ranks[0].process.host)
        == 1000
    )


class Peer:
    """Says some lines, one after each that it hears, and closes."""

    def __init__(self, *says: bytes) -> None:
        self.says = says
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.server.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        connection, _ = self.server.accept()
        with connection, connection.makefile("rwb", buffering=0) as stream:
            for line in self.says:
                stream.readline()
                stream.write(line)

    def __enter__(self) -> int:
        return self.port

    def __exit__(self, *exc: object) -> None:
        self.thread.join(10)
        self.server.close()


def test_what_listens_may_be_something_else() -> None:
    with (
        Peer(b"220 mail\n") as port,
        pytest.raises(ras_reader.NoRas, match="does not speak NCCL RAS; it answered '220 mail'"),
    ):
        ras_reader.query(port=port, timeout_s=10)
    with Peer(b"") as port, pytest.raises(ras_reader.NoRas, match="closed the connection"):
        ras_reader.query(port=port, timeout_s=10)
    with Peer(b"x" * 5000) as port, pytest.raises(ras_reader.NoRas, match="its answer did not end"):
        ras_reader.query(port=port, timeout_s=10)


def test_what_it_does_not_take_is_noted() -> None:
    said = (DATA / JSON).read_bytes()
    with Peer(b"SERVER PROTOCOL 2\n", b"ERROR\n", b"ERROR\n", said) as port:
        assert ras_reader.query(port=port, timeout_s=10).notes == [
            "RAS did not accept the timeout",
            "RAS was asked for text but answered in json",
        ]


TEXT_RULES = """NCCL version 2.28.9 compiled with CUDA 13.0
Job summary
  Group     Comms     Nodes     Ranks
      0         1         1         4 X
#0-0 (ab) MISMATCH
Communicator ranks have different collective operation counts
3 ranks have launched up to operation 9
Rank 0 -- GPU 0 managed by process 5 on node h1
1 ranks have not launched any operations
Rank 2 -- [process information not found]
Communicator ranks have different status
Rank 1 has status INIT -- GPU 1 managed by process 6 on node h1
2 ranks have status FINALIZE
Rank 3 -- GPU 3 managed by process 8 on node h1
Rank 3 - GPU 3 managed by process 8 on node h1
#0-1 (cd) ERROR
2 ranks reported unhandled system error
Rank 0 -- GPU 0 managed by process 5 on node h1
Rank 1 reported invalid usage -- GPU 1 managed by process 6 on node h1
"""


def test_lines_of_text_belong_to_the_section_above() -> None:
    one, other = ras_reader.parse(TEXT_RULES.encode()).communicators
    assert [(c.op, c.launched, c.number, c.ranks) for c in one.differences] == [
        ("", 9, 3, [0]),
        ("", 0, 1, [2]),
    ]
    assert {r.rank: (r.state, r.process.pid, r.launched) for r in one.ranks} == {
        0: ("running", 5, {"": 9}),
        2: ("running", 0, {"": 0}),
        1: ("init", 6, {}),
        3: ("finalize", 8, {}),
    }
    assert [(r.rank, r.state, r.error) for r in other.ranks] == [
        (0, "error", "unhandled system error"),
        (1, "error", "invalid usage"),
    ]


def test_lines_of_a_section_without_a_state_leave_the_rank_as_it_was() -> None:
    text = "Job summary\n#0-0 (ab) MISMATCH\nRank 1 -- GPU 1 managed by process 5 on node h1\n"
    [comm] = ras_reader.parse(text.encode()).communicators
    assert [(r.rank, r.state) for r in comm.ranks] == [(1, "running")]


def test_processes_without_a_number_are_no_dead_ones() -> None:
    text = "Job summary\nDEAD\nProcess 0 on node h1 managing GPU 1\n#0-0 (ab) INCOMPLETE\nRank 1 -- GPU 1 managed by process 0 on node h1\n"
    text += "Rank 2 --  managed by process 7 on node h1\nRank 3 -- CPU 1 managed by process 7 on node h1\nRank 4 -- GPU 1 on node h1\n"
    [comm] = ras_reader.parse(text.encode()).communicators
    assert [(r.rank, r.state) for r in comm.missing] == [(1, "missing")]


def test_a_rank_before_any_title_of_counts_is_not_counted() -> None:
    text = "Job summary\n#0-0 (ab) MISMATCH\nRank 1 has launched 7 operations -- GPU 1 managed by process 5 on node h1\n"
    [comm] = ras_reader.parse(text.encode()).communicators
    assert comm.differences == [] and comm.ranks[0].launched == {}


def test_sizes_that_a_communicator_can_have() -> None:
    from hangdoctor.text.ranges import MAX_RANKS

    assert [ras_reader.size_of(n) for n in (-1, 0, 1, MAX_RANKS, MAX_RANKS + 1)] == [
        0,
        0,
        1,
        MAX_RANKS,
        0,
    ]


def test_the_time_for_all_of_it_is_the_limit() -> None:
    report = b"Job summary\n" + b"x\n" * 10
    with Peer(b"SERVER PROTOCOL 2\n", b"OK\n", b"ERROR\n", report) as port:
        assert (
            ras_reader.query(port=port, timeout_s=0.9).form == "text"
        )  # less than a second is no reason not to ask
    line = b"SERVER PROTOCOL 2" + b" " * 4078
    with Peer(line + b"2\n", b"OK\n", b"OK\n", (DATA / JSON).read_bytes()) as port:
        assert ras_reader.query(port=port, timeout_s=10).form == "json", (
            "a line of 4,096 characters is read"
        )


def test_what_answers_without_end_is_read_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras_reader, "MAX_BYTES", 1 << 17)
    with Peer(
        b"SERVER PROTOCOL 2\n", b"OK\n", b"ERROR\n", b"Job summary\n" + b"x\n" * (1 << 17)
    ) as port:
        assert ras_reader.query(port=port, timeout_s=10).form == "text"
    ours, theirs = socket.socketpair()
    with ours, theirs:

        def send() -> None:
            theirs.sendall(b"y" * (1 << 18))
            theirs.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        got = ras_reader._rest(ours, ras_reader.time.monotonic() + 10)
        assert 1 << 17 <= len(got) < 3 << 16
        ours.settimeout(10)
        while ours.recv(1 << 16):
            pass
        sender.join(10)


def test_a_process_is_named_once() -> None:
    """In JSON a rank may be listed twice, and in each communicator; in text in each section."""
    gone = {"rank": 1, "host": "n1", "pid": 7, "nvml_dev": 0, "status": {"considered_dead": True}}
    mute = gone | {"pid": 8, "status": {"unresponsive": True}}
    also = gone | {"status": {"unresponsive": True}}
    rows = [
        {"hash": name, "size": 2, "missing_ranks": [gone, gone, mute, mute, also]} for name in "ab"
    ]
    report = ras_reader.parse(json.dumps({"nccl_version": "2.29", "communicators": rows}).encode())
    assert [p.pid for p in report.dead] == [7] and [p.pid for p in report.silent] == [8]
    line = "  Process {} on node n1 managing GPU 0\n"
    sections = ("INCOMPLETE", "7 8 8"), ("DEAD", "7 7"), ("TIMEOUT", "8 9")
    text = "".join(f"{name}\n{''.join(map(line.format, pids.split()))}" for name, pids in sections)
    report = ras_reader.parse(f"Job summary\n{text}".encode())
    assert [p.pid for p in report.dead] == [7] and [p.pid for p in report.silent] == [8, 9]


def test_what_looks_like_an_answer_of_ras() -> None:
    both = b'{"nccl_version": "2.29", "communicators": []}'
    assert (
        ras_reader.is_ras(both)
        and ras_reader.is_ras(b"\n" + both)
        and ras_reader.is_ras(b"x\nJob summary\n")
    )
    for other in (
        b'{"nccl_version": "2.29"}',
        b'{"communicators": []}',
        b"a Job summary",
        b"",
        b"{",
    ):
        assert not ras_reader.is_ras(other), other


def test_counts_that_are_no_table_are_passed_over() -> None:
    row = {"rank": 0, "collective_counts": [["AllReduce", 3]], "status": None}
    answer = {"nccl_version": "2.29", "communicators": [{"hash": "1", "size": 2, "ranks": [row]}]}
    [comm] = ras_reader.parse(json.dumps(answer).encode()).communicators
    assert [(r.rank, r.launched) for r in comm.ranks] == [(0, {})]


def test_the_missing_ranks_of_an_older_nccl() -> None:
    text = "Job summary\n#0-0 (ab) INCOMPLETE\n  The missing ranks: 3, 5\n"
    [comm] = ras_reader.parse(text.encode()).communicators
    assert [(r.rank, r.state) for r in comm.missing] == [(3, "missing"), (5, "missing")]
