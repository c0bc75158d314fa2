"""NCCL's RAS: sample texts, sample JSON, and its protocol against a server that speaks it."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.errors import BadInput
from hangdoctor.model.ras import RasCounts, RasProcess
from hangdoctor.readers import ras

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
    report = ras.query(port=server.port, timeout_s=10)
    assert server.heard == ["CLIENT PROTOCOL 2", "TIMEOUT 5", "SET FORMAT json", "VERBOSE STATUS"]
    assert (report.form, report.version, report.notes) == ("json", "2.29.1", [])


@pytest.mark.parametrize("server", [{"json": False, "protocol": 1}], indirect=True)
def test_text_is_read_from_an_older_nccl(server: FakeRasServer) -> None:
    report = ras.query(port=server.port, timeout_s=10)
    assert report.form == "text" and report.communicators[0].hash == "cf264af53edbe986"
    assert report.notes == ["RAS speaks protocol 1, this reader 2"]


@pytest.mark.parametrize("server", [{"answers": False}], indirect=True)
def test_silence_ends_at_the_deadline(server: FakeRasServer) -> None:
    with pytest.raises(ras.NoRas, match=r"within 0\.3 s"):
        ras.query(port=server.port, timeout_s=0.3)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ras.NoRas, match="refused") as e:
        ras.query(port=port, timeout_s=1)
    assert "NCCL_RAS_ENABLE" in e.value.help


def test_json_counts_missing_and_errors() -> None:
    report = ras.read_file(DATA / JSON)
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
    assert report.dead == [RasProcess("10.1.0.7", 201, "1")] and report.timeouts == 1


def test_text_of_2_24_counts_all_operations_together() -> None:
    (comm,) = ras.read_file(DATA / "mismatch-2.24.txt").communicators
    assert comm.size == 8 and comm.problems == ["MISMATCH"]
    assert comm.differences == [
        RasCounts("", 6650, 6, [0, 1, 4, 5, 6, 7]),
        RasCounts("", 6649, 2, [2, 3]),
    ]
    assert comm.ranks[0].process == RasProcess("10.1.0.7", 4102, "2")


def test_verbose_text_names_dead_missing_and_outliers() -> None:
    report = ras.read_file(DATA / TEXT)
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
        ras.parse(data)


def test_answers_are_known_by_their_first_bytes() -> None:
    assert all(ras.is_ras((DATA / name).read_bytes()) for name in (JSON, TEXT, "mismatch-2.24.txt"))
    assert (
        not ras.is_ras(b'{"version": "2.10"}')
        and not ras.is_ras(b"Process 7: python")
        and not ras.is_ras(b"")
    )
