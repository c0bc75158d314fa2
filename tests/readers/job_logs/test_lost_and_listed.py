"""Launchers that lost their own process on a node, Flux's words, MPICH's stacks, and lists of processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named


@pytest.mark.parametrize(
    "text",
    [
        "ORTE has lost communication with its daemon located on node:\n\n  hostname:  k17\n\nThis is usually due to\n",
        "PRTE has lost communication with a remote daemon.\n\n  HNP daemon   : [prterun-k1-5@0,0] on node k1\n  Remote daemon: [prterun-k1-5@0,2] on node k17\n",
        "3.2s: job.exception type=node-failure severity=2 lost contact with job shell on k17 (shell rank 4)\n",
        "[mpiexec@k1] control_cb (pm/pmiserv/pmiserv_cb.c:1012): connection to proxy 1 at host k17 failed\n",
    ],
)
def test_the_node_that_a_launcher_lost(tmp_path: Path, text: str) -> None:
    found = diagnosed(tmp_path, text)
    assert named(found) == [("unreachable", [])] and found.causes[0].nodes == ["k17"]


def test_a_hosts_name_elsewhere_is_no_lost_node(tmp_path: Path) -> None:
    assert diagnosed(tmp_path, "  hostname:  k17\nstep 3 loss 1.5\n").causes == []


def test_fluxs_shell_is_no_rank(tmp_path: Path) -> None:
    text = "0.4s: flux-shell[2]: FATAL: MPI_Abort: Fatal error in PMPI_Bcast:\nflux-job: task(s) exited with exit code 1\n"
    found = diagnosed(tmp_path, text)
    assert named(found) == [("dead", [])] and "PMPI_Bcast" in found.summary
    assert "does not show which" in found.summary


HEAD = "MPICH ERROR [Rank 9] [job id 7.0] [Mon May  5 10:00:00 2025] [k3] - Abort(207) (rank 9 in comm 0): Fatal error in PMPI_{0}: Other MPI error, error stack:\n"
CALL = "PMPI_{0}(163)..................: MPI_{0}(buf=0x7f, count=4, MPI_INT, {1}=2, tag=0, {2}) failed\n"


def test_the_network_below_mpi_reported_it(tmp_path: Path) -> None:
    reason = "MPIDI_OFI_handle_cq_error(1075).: OFI poll failed (ofi_events.c:1077:MPIDI_OFI_handle_cq_error:Input/output error)\n"
    found = diagnosed(tmp_path, HEAD.format("Wait") + "MPIR_Wait(352)....:\n" + reason)
    assert (found.status, named(found)) == ("failed", [("in_communication", [])])
    assert "rank 9 on k3" in found.summary and "Input/output error" in found.summary


def test_with_whom_the_call_was(tmp_path: Path) -> None:
    world = "MPI_COMM_WORLD"
    found = diagnosed(tmp_path, HEAD.format("Send") + CALL.format("Send", "dest", world))
    assert named(found) == [("in_communication", [])], "it accuses neither"
    assert "Between rank 9 on k3 and rank 2: its MPI_Send to rank 2 failed" in found.summary
    found = diagnosed(
        tmp_path, HEAD.format("Recv") + CALL.format("Recv", "src", world + ", status=0x1")
    )
    assert "MPI_Recv from rank 2" in found.summary
    other = HEAD.format("Send") + CALL.format("Send", "dest", "comm=0x84000001")
    assert "rank 2" not in diagnosed(tmp_path, other).summary, "its number there is another one"


def test_a_parents_word_on_a_child(tmp_path: Path) -> None:
    text = "[2025-07-01 10:00:00] Child process unexpectedly failed with exitcode={}. pid=5511\n"
    found = diagnosed(tmp_path, text.format(134))
    assert named(found) == [("dead", [])] and "Process 5511" in found.summary
    assert diagnosed(tmp_path, text.format(143)).causes == [], "asked to end"
    told = "Traceback (most recent call last):\n  File 'x.py', line 3, in f\nValueError: bad\n"
    assert "ValueError" in diagnosed(tmp_path, text.format(1) + told).summary
    listed = "[<SpawnProcess name='SpawnProcess-2' pid=5511 parent=5500 stopped exitcode=-SIGSEGV>, <SpawnProcess name='SpawnProcess-1' pid=5510 parent=5500 stopped exitcode=0>]\n"
    assert "Process 5511" in diagnosed(tmp_path, listed).summary


def crash(node: str, pid: int) -> str:
    return f"[{node}:{pid} :0:{pid}] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x9)\n"


def test_many_that_crash_alike_are_counted(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, crash("k1", 20) + crash("k2", 30) + crash("k1", 22))
    assert named(found) == [("dead", [])] and found.causes[0].nodes == ["k1", "k2"]
    assert "3 processes on k[1-2]" in found.summary and "first does not show" in found.summary
    assert "Process 20 on k1" in diagnosed(tmp_path, crash("k1", 20)).summary


TREE = """\
   4000 slurm_script
   4010  \\_ python
   4021      \\_ python
   4030      |   \\_ pt_data_worker
   4022      \\_ python <defunct>
   4023      \\_ python
"""
TABLE = """\
    PID    PPID STAT COMMAND
   4010       1 Ss   bash run.sh
   4021    4010 {}   python train.py
   4022    4010 {}   python train.py
   4023    4010 Rl   python train.py
"""


def test_processes_that_a_list_shows_as_ended_or_stopped(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, {"ps.txt": TREE})
    assert (found.status, named(found)) == ("failed", [("dead", [])])
    assert "Process 4022 (python)" in found.summary and "4021, 4023" in found.summary
    found = diagnosed(tmp_path, {"ps.txt": TABLE.format("Rl", "Tl")})
    assert (found.status, named(found)) == ("hang", [("stopped", [])]) and "4022" in found.summary
    found = diagnosed(tmp_path, {"ps.txt": TABLE.format("Dl", "Rl")})
    assert named(found) == [("io_wait", [])] and found.causes[0].confidence <= 0.5


def test_lists_that_say_nothing(tmp_path: Path) -> None:
    lone = TREE.replace(
        "   4022      \\_ python <defunct>\n", "   4022      \\_ nvidia-smi <defunct>\n"
    )
    for text in (
        lone,
        TABLE.format("Rl", "Sl"),
        TABLE.format("Dl", "Dl").replace("Rl", "Dl"),
        "    1 0.5 0.3\n    2 0.4 0.3\n",
    ):
        assert diagnosed(tmp_path, {"ps.log": text}).causes == [], text


def test_a_text_that_speaks_of_ranks_gets_an_answer(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, {"notes.md": "On Friday rank 3 looked odd, process 811.\n"})
    assert (found.status, found.causes) == ("unknown", [])
    assert any("notes.md" in note for note in found.notes)
