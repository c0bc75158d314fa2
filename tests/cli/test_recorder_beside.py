"""A dump of ranks with black boxes asks torch's own recorder as well: it counts what C++ issues."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor import probe
from hangdoctor.diagnosis import diagnose
from hangdoctor.diagnosis.case import open_case
from hangdoctor.diagnosis.recorders import by_recorder
from hangdoctor.model.capture import Frame, JobCapture, NodeCapture, RankCapture
from hangdoctor.model.operations import Operation, RankOps
from hangdoctor.readers.recorder_beside import ask, socket_of
from hangdoctor.storage.bundle import load
from hangdoctor.transport.capture_codec import pack_capture, unpack_capture
from tests.support.active_dumps import dump, entry
from tests.support.captures import LOAD, MAIN, WAIT, stack, still
from tests.support.fake_worker_server import FakeWorkerServer
from tests.support.stage import Stage, hangdoctor, switches, wait_until

pytestmark = pytest.mark.torch
BACKWARD = stack(
    ("_engine_run_backward", "/site-packages/torch/autograd/graph.py", 979),
    ("backward", "/site-packages/torch/_tensor.py", 623),
    MAIN,
)
STARTUP = Path(probe.__file__).parent / "startup"
ROOT = Path(probe.__file__).parents[2]


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    # A Unix socket's path has room for 107 bytes only.
    folder = tmp_path_factory.mktemp("j")
    environ = {"PYTHONPATH": f"{STARTUP}:{ROOT}", "HANGDOCTOR_DIR": str(folder / "b")}
    with Stage(folder / "job", world=4, environ=environ) as job:
        yield job.wait_ready()


def test_the_operation_that_c_plus_plus_issued_is_counted(probed: Stage) -> None:
    probed.play("functional", 2)
    verdict = probed.dump()
    probed.release(2)
    [cause] = verdict["causes"]
    assert (cause["kind"], cause["ranks"]) == ("not_entered", [2])
    assert (cause["where"]["op"], cause["where"]["group_ranks"]) == ("all_reduce", [0, 1, 2, 3])
    assert cause["where"]["seq"] > 3, "the number that torch itself counts"
    assert {e["source"] for e in cause["evidence"]} >= {"ops", "stack"}
    assert cause["confidence"] >= 0.95


def test_what_a_box_records_is_still_read_from_it(probed: Stage) -> None:
    probed.play("sleep", 1)
    verdict = probed.dump()
    probed.release(1)
    [cause] = verdict["causes"]
    assert (cause["kind"], cause["ranks"]) == ("not_entered", [1])


def test_a_stopped_rank_costs_no_time_and_is_named(probed: Stage) -> None:
    probed.play("functional", 3)
    os.kill(probed.pid(3), signal.SIGSTOP)
    wait_until(lambda: "T (stopped)" in switches(probed.pid(3)), "stopped")
    try:
        verdict = probed.dump()
    finally:
        os.kill(probed.pid(3), signal.SIGCONT)
    probed.release(3)
    assert [(c["kind"], c["ranks"]) for c in verdict["causes"]] == [("stopped", [3])]
    assert not any("did not answer" in note for note in verdict["notes"])


def test_a_bundle_keeps_both_and_replays(probed: Stage) -> None:
    probed.play("functional_then_store", 0)
    bundle = probed.folder / "kept"
    args = ("dump", "--local", "--job", probed.key, "--json", "-", "--bundle", str(bundle))
    live = hangdoctor(*args, cwd=probed.folder).stdout
    capture = load(bundle)
    without = [r.rank for r in capture.ranks() if r.ops is None or r.recorded is None]
    assert not without, json.loads(live)["notes"]
    again = hangdoctor("diagnose", str(bundle), "--json", "-", cwd=probed.folder).stdout
    assert again == live
    assert [c["ranks"] for c in json.loads(live)["causes"]] == [[0]]


def test_transfers_that_gloo_does_not_record_are_read_from_the_boxes() -> None:
    """Rank 0 waits in a receive, the others in what C++ issued: the boxes alone know of both."""
    receives = RankOps(0, 2, operations=[Operation("g", 1, "recv", peer=1)])
    waits = RankOps(1, 2, source="flight_recorder", operations=[Operation("g", 7, "all_reduce")])
    nothing = RankOps(0, 2, source="flight_recorder")
    ranks = [
        RankCapture(pid=1, rank=0, ops=receives, recorded=nothing),
        RankCapture(pid=2, rank=1, ops=RankOps(1, 2), recorded=waits),
    ]
    capture = JobCapture("j", [NodeCapture("n", ranks=ranks)], [], 2)
    assert not by_recorder(open_case(capture))
    nothing.runs_ahead = waits.runs_ahead = True  # NCCL's records them
    assert by_recorder(open_case(capture))


def test_with_nccl_the_recorder_names_the_operation_of_the_device(tmp_path: Path) -> None:
    """A stand-in serves what ranks with NCCL do: all wait in a gradient bucket that C++ issued, and
    no box knows of it; one has not come to it.
    """
    servers, ranks = [], []
    try:
        for rank in range(4):
            pending = [] if rank == 2 else [entry(80, 81, op="_allgather_base")]
            servers.append(
                FakeWorkerServer(
                    tmp_path / f"{rank}.sock", dump({"0": range(4)}, {"0": 80}, pending)
                )
            )
            stack = LOAD if rank == 2 else WAIT
            ranks.append(still(rank, stack, pid=os.getpid(), ops=RankOps(rank, 4)))
        for first in (True, False):
            asked = [(rank, tmp_path / f"{rank.rank}.sock") for rank in ranks]
            assert ask(asked, first) == []
    finally:
        for server in servers:
            server.close()
    [cause] = diagnose(JobCapture("j", [NodeCapture("n1", ranks=ranks)], [], 4, taken=1.0)).causes
    assert (cause.kind, cause.ranks, cause.where.seq) == ("not_entered", [2], 81)
    assert (cause.where.group_ranks, cause.where.frame) == (
        [0, 1, 2, 3],
        "load_batch (/app/data.py:40)",
    )


def test_recorders_are_left_alone_where_the_boxes_show_the_waits(tmp_path: Path) -> None:
    """The socket is a plain file: a rank that is asked does not answer, and that is noted."""
    socket = tmp_path / "hangdoctor-1.sock"
    socket.touch()
    waits = RankOps(0, 2, operations=[Operation("g", 1, "all_reduce")])
    nothing = RankOps(1, 2)

    def asked(*boxes: RankOps, stack: list[Frame]) -> bool:
        ranks = [still(r, stack, pid=os.getpid(), ops=box) for r, box in enumerate(boxes)]
        for rank in ranks if not stack else []:
            for one in rank.samples:
                one.threads = []
        return bool(ask([(rank, socket) for rank in ranks], first=False))

    assert not asked(waits, nothing, stack=LOAD)
    assert asked(waits, nothing, stack=WAIT), "one waits in what its box does not know"
    assert asked(waits, nothing, stack=BACKWARD), "gradients may be reduced there"
    assert asked(nothing, nothing, stack=LOAD), "no box of this node shows any wait"
    assert asked(waits, nothing, stack=[]), "no stack was read"


def test_both_go_to_the_collector() -> None:
    own = RankOps(0, 2, operations=[Operation("g", 1, "all_reduce")])
    of_torch = RankOps(0, 2, source="flight_recorder", operations=[Operation("g", 7, "barrier")])
    rank = RankCapture(pid=1, rank=0, ops=own, recorded=of_torch, recorded_before=of_torch)
    found = unpack_capture(pack_capture(NodeCapture("n", ranks=[rank]))).ranks[0]
    assert (found.ops, found.recorded, found.recorded_before) == (own, of_torch, of_torch)


def test_the_socket_of_a_process_on_a_host_whose_name_ends_in_a_number(tmp_path: Path) -> None:
    (tmp_path / "hangdoctor-77.sock").touch()
    (tmp_path / "hangdoctor-88-4026.sock").touch()
    assert socket_of(tmp_path / "node-3-77.blackbox", {}) == tmp_path / "hangdoctor-77.sock"
    assert socket_of(tmp_path / "n-88-4026.blackbox", {}) == tmp_path / "hangdoctor-88-4026.sock"
    assert socket_of(tmp_path / "n-99.blackbox", {}) is None
    theirs = {"TORCH_WORKER_SERVER_SOCKET": "/x/y.sock"}
    assert socket_of(tmp_path / "n-99.blackbox", theirs) == Path("/x/y.sock")
