"""What network cards, their libraries and the drivers of devices print when they fail.

Texts by the formats of their own strings.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed

SYNDROME = "[n7:811:0:811] ib_mlx5_log.c:179  {} on mlx5_0:1/IB (synd 0x{} vend 0x81 hw_synd 0/0)\n"
STACK = "[n7:812] [ 8] /opt/ucx/lib/ucx/libuct_ib_mlx5.so.0(uct_rc_mlx5_iface_handle_failure+0x13c)[0x14cd]\n"
XE = "[Tue Aug  4 20:51:21 2026] xe 0000:2b:00.0: [drm] Tile0: GT0: {}\n"
SEGFAULT = "[n7:{pid}:0:{pid}] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)\n"


@pytest.mark.parametrize(
    ("text", "nodes", "says"),
    [
        (SYNDROME.format("Transport retry count exceeded", "15"), [], "Between process 811 on n7"),
        (SYNDROME.format("Remote QP", "14"), [], "an InfiniBand transfer of mlx5_0:1 ended"),
        (SYNDROME.format("Local protection", "4"), ["n7"], "a buffer of its own side"),
        (
            "[n7:811  :0]  rc_verbs_iface.c:47   UCX  ERROR Send completion with error: local QP operation error\n",
            ["n7"],
            "(local QP operation error)",
        ),
        (STACK, [], "uct_rc_mlx5_iface_handle_failure in its stack"),
        (
            "[  72.9] habanalabs hl2: Failed to communicate with Device CPU (CPU-CP timeout)\n",
            [],
            "the Gaudi hl2 could not be initialised",
        ),
        (
            XE.format("Timedout job: seqno=9, lrc_seqno=9, guc_id=0, flags=0x73 in python [81]"),
            [],
            "Intel's GPU 0000:2b:00.0 hung and was reset by its driver",
        ),
        (
            "i010.lab.edu.64451PSM2 can't open hfi unit: -1 (err=23)\n",
            ["i010"],
            "could not open its card: err=23",
        ),
        (
            "n2:81:81 [0] graph/xml.cc:155 NCCL WARN XML Parse : expected >, got '\n",
            ["n2"],
            "NCCL could not read its topology file",
        ),
    ],
)
def test_what_failed_and_where(tmp_path: Path, text: str, nodes: list[str], says: str) -> None:
    found = diagnosed(tmp_path, text)
    assert found.status == "failed" and says in found.summary
    assert found.causes[0].nodes == nodes and found.causes[0].advice


def test_a_driver_that_a_node_lacks_is_no_failure(tmp_path: Path) -> None:
    """Processes of C++ that end by the same exception, far apart: each was uncaught."""
    lacks = "libibverbs: Warning: couldn't load driver 'libx-rdmav34.so': libx-rdmav34.so: cannot open shared object file: No such file\n"
    full = "terminate called after throwing an instance of 'umpire::out_of_memory_error'\n  what():  ! Umpire runtime_error [Alloc.hpp:38]: cudaMalloc( bytes = 169 ) failed with error: out of memory\n"
    stack = "".join(
        f"    {n} 0x562fee29527c No dladdr: /opt/kripke(_ZN6umpire)\n" for n in range(45)
    )
    found = diagnosed(tmp_path, 4 * lacks + 6 * (full + stack))
    assert found.status == "failed" and "the GPU's memory is full" in found.summary


def test_mpi_before_its_start(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, "Attempting to use an MPI routine before initializing MPICH\n")
    assert "it called MPI before MPI_Init" in found.summary


def test_the_address_of_a_card_is_said(tmp_path: Path) -> None:
    xid = "[4254.1] NVRM: Xid (PCI:0000:5d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    assert "The GPU 0000:5d:00 has fallen off the bus" in diagnosed(tmp_path, xid).summary


def test_the_speaker_of_a_failed_connection_is_no_culprit_alone(tmp_path: Path) -> None:
    udcm = "[n1][[38728,26070],64][connect/btl_openib_connect_udcm.c:2034:udcm_process_messages] could not initialize cpc data for endpoint\n"
    found = diagnosed(tmp_path, udcm)
    assert found.causes[0].ranks == [] and "Between rank 64" in found.summary


def test_fifty_processes_that_crash_alike_have_survived_nothing(tmp_path: Path) -> None:
    """Lines of one kind far apart are no habit where each is of another process."""
    stack = "".join(
        f"{n} 0x46634 ucp_request_cancel()  /build/ucp_request.c:251\n" for n in range(3)
    )
    text = "".join(SEGFAULT.format(pid=900 + n) + stack for n in range(50))
    found = diagnosed(tmp_path, text)
    assert found.status == "failed" and "50 processes on n7 failed alike" in found.summary


WATCHDOG = "[rank{0}]:[E ProcessGroupNCCL.cpp:523] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={1}, OpType={2}, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600644 milliseconds before timing out.\n"


def test_who_is_the_furthest_behind_is_said_and_not_accused(tmp_path: Path) -> None:
    waits = [(0, 6207, "ALLGATHER"), (1, 6206, "ALLGATHER"), (2, 6207, "ALLGATHER")]
    found = diagnosed(tmp_path, "".join(WATCHDOG.format(*wait) for wait in waits))
    assert found.causes == []
    assert "rank 1 is the furthest behind, still in all_gather #6206" in found.summary
    apart = [(0, 6207, "ALLGATHER"), (1, 12, "BROADCAST"), (2, 9000, "ALLREDUCE")]
    found = diagnosed(tmp_path, "".join(WATCHDOG.format(*wait) for wait in apart))
    assert "furthest behind" not in found.summary
