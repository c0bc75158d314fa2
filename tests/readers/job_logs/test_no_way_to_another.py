"""Connections that could not be made, and answers that do not come: between two, and nobody's fault yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed

STEPS = "step 10 loss 0.2\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "n5:240:240 [6] misc/socket.cc:533 NCCL WARN socketPollConnect: Connect to 10.0.0.4<56849> returned 113(No route to host) errno 115(Operation now in progress)",
            "Between process 240 on n5 and 10.0.0.4: NCCL could not connect (No route to host)",
        ),
        (
            "n8:795:822 [0] include/socket.h:409 NCCL WARN Net : Connect to 10.0.0.9<54263> failed : No route to host",
            "Between process 795 on n8 and 10.0.0.9: NCCL could not connect (No route to host)",
        ),
        (
            "n13:941:943 [0] include/socket.h:390 NCCL WARN Connect to 10.0.0.12<21724> failed : Connection refused",
            "Between process 941 on n13 and 10.0.0.12: NCCL could not connect: refused",
        ),
        (
            "  Local host: n2\n  PID:        24783\n  Message:    connect() to 169.254.140.13:1026 failed\n  Error:      Resource temporarily unavailable (11)",
            "and 169.254.140.13: Open MPI could not connect over TCP",
        ),
    ],
)
def test_a_connection_that_was_not_made_lies_between_two(
    tmp_path: Path, line: str, says: str
) -> None:
    found = diagnosed(tmp_path, f"{STEPS}{line}\n")
    assert says in found.summary and found.causes[0].ranks == [], found.summary


def test_that_it_is_tried_again_is_no_failure(tmp_path: Path) -> None:
    again = "n13:941:943 [0] NCCL INFO Call to connect returned Connection refused, retrying\n"
    assert diagnosed(tmp_path, STEPS + again + "step 11 loss 0.2\n").causes == []


def test_how_many_processes_sent_a_help_message_is_no_failure(tmp_path: Path) -> None:
    text = "[n1:28731] 3 more processes have sent help message help-mpi-btl-tcp.txt / client connect fail\n"
    assert diagnosed(tmp_path, STEPS + text).causes == []


def test_nccls_ras_does_without_its_port(tmp_path: Path) -> None:
    """The port of the rendezvous is another one."""
    ras = "n9:25:25 [0] ras/client_support.cc:160 NCCL WARN Call to bind failed: Address already in use\n"
    assert diagnosed(tmp_path, STEPS + ras).causes == []
    store = "RuntimeError: The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).\n"
    assert "29500 is taken by another process" in diagnosed(tmp_path, STEPS + store).summary


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "E0000 00:00:1725834192.702937 625990 collective_ops_utils.h:310] This thread has been waiting for 5000ms for and may be stuck: participant AllReduceParticipantData{rank=1, element_count=7840}",
            "rank 1 printed that a thread of XLA waits for others at 'AllReduce'",
        ),
    ],
)
def test_who_waits_for_an_answer_is_no_culprit(tmp_path: Path, line: str, says: str) -> None:
    found = diagnosed(tmp_path, STEPS + f"{line}\n" * 3)
    assert (found.status, found.causes) == ("unknown", []), found.summary
    assert says in found.summary


SESSION = "I tensorflow/core/distributed_runtime/master.cc:268] CreateSession still waiting for response from worker: /job:ps/replica:0/task:1\n"
CONTROL = "I0103 21:17:47.210516 20165 ctrl_client.cpp:234] LoadServer 10.0.0.7 Failed at {} times error_code 14 error_message failed to connect to all addresses\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (SESSION * 3, "Between a rank and /job:ps/replica:0/task:1: TensorFlow's session waits"),
        (
            "".join(CONTROL.format(n) for n in range(4)),
            "Between a rank and 10.0.0.7: the process cannot connect to OneFlow's control server",
        ),
    ],
    ids=["a session of TensorFlow", "OneFlow"],
)
def test_a_start_that_waits_for_another_names_it(tmp_path: Path, text: str, says: str) -> None:
    found = diagnosed(tmp_path, text)
    assert [(c.kind, c.ranks) for c in found.causes] == [("start_stall", [])], found.summary
    assert says in found.summary


def test_a_session_that_got_its_answers_has_started(tmp_path: Path) -> None:
    assert diagnosed(tmp_path, SESSION * 3 + STEPS + "step 11 loss 0.2\n").causes == []


def test_a_row_of_hccls_links_that_timed_out_has_both_ends(tmp_path: Path) -> None:
    head = "[ERROR] HCCL(397,all_reduce_test):2025-11-22-17:37:04.448.967 [hccl_socket_manager.cc:599] [3977] "
    row = f"{head}| 10.0.2.198(1) | 16666 | 10.0.2.199(0) | 0 | server | time out | DISABLE |\n"
    found = diagnosed(tmp_path, STEPS + row)
    assert (
        "Between rank 0 on 10.0.2.199 and 10.0.2.198: HCCL could not make a link" in found.summary
    )
    fine = row.replace("time out", "connected")
    assert "could not make a link" not in diagnosed(tmp_path, STEPS + fine).summary


def test_a_message_that_gasnet_got_back_accuses_no_sender(tmp_path: Path) -> None:
    line = "*** FATAL ERROR(Node 2): An active message was returned to sender,\n"
    found = diagnosed(tmp_path, STEPS + line)
    assert "Between rank 2 and another process: GASNet could not deliver" in found.summary


def test_a_socket_without_its_other_end_is_no_file_system(tmp_path: Path) -> None:
    words = "terminate called after throwing an instance of 'std::system_error'\n  what():  Transport endpoint is not connected\n"
    link = "  what():  CUDA error: uncorrectable NVLink error detected during the execution\n"
    assert "NVLink error" in diagnosed(tmp_path, STEPS + words + link).summary
    mount = "OSError: [Errno 107] Transport endpoint is not connected: '/scratch/data'\n"
    assert "network file system" in diagnosed(tmp_path, STEPS + mount).summary


def test_horovods_rows_behind_the_rank_that_prints_them(tmp_path: Path) -> None:
    text = (
        "[3] Missing ranks:\n[3] 0: [broadcast.a, broadcast.b]\n[3] 1: [broadcast.a, broadcast.b]\n"
    )
    found = diagnosed(tmp_path, STEPS + text)
    assert [(c.kind, c.ranks) for c in found.causes] == [("not_entered", [0, 1])], found.summary


def test_who_was_asked_to_end_did_not_fail(tmp_path: Path) -> None:
    line = "FatalError: `Termination signal` is detected by the operating system.\n"
    assert diagnosed(tmp_path, STEPS + line).causes == []


def test_a_traceback_that_is_cut_in_a_barrier_is_of_one_that_waited(tmp_path: Path) -> None:
    head = '[rank7]: Traceback (most recent call last):\n[rank7]:   File "/app/loader.py", line 324, in get_dataset\n'
    waits = '[rank7]:     with training_args.main_process_first(desc="data"):\n[rank7]:   File "/usr/lib/python3.10/contextlib.py", line 135, in __enter__\n'
    assert diagnosed(tmp_path, head + waits).causes == []
    works = "[rank7]:     rows = read_table(path)\n"
    assert [c.ranks for c in diagnosed(tmp_path, head + works).causes] == [[7]]
